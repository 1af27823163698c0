package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

// Exit codes of every verb.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitConfig      = 5
	exitTimeout     = 6
	exitUnreachable = 7
)

// world is what the verbs need from outside; tests bring their own.
type world struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	uid            int
	now            func() time.Time
	version        admin.VersionInfo
	// pack opens an artifact for upload; kind is admin.KindFile or admin.KindDir.
	pack func(ctx context.Context, path string) (kind string, body io.ReadCloser, err error)
	// program is the path of this program, for verbs that start another usher.
	program func() (string, error)
	// retry is the first pause before a lost daemon is tried again; 0 is the
	// client's own.
	retry time.Duration
}

// cli is one run of the command line.
type cli struct {
	world
	admin string // the flag
}

// newRoot builds the command tree: the verbs that talk to a running usher, and
// more, which are the ones that do not (serve, validate, ...).
func newRoot(w world, more ...*cobra.Command) *cobra.Command {
	c := &cli{world: w}
	root := &cobra.Command{
		Use:           "usher",
		Short:         "The front door for hosted apps on one box",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = nearWord
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.PersistentFlags().StringVar(&c.admin, "admin", "",
		"address of usher's admin api: unix:/path, host:port or https://host (default $USHER_ADMIN, else "+
			admin.DefaultAddress(w.uid, w.getenv).String()+")")
	root.AddCommand(c.deployCommand(), c.statusCommand(), c.receiptsCommand(), c.eventsCommand(), c.logsCommand(),
		c.reloadCommand(), c.purgeCommand(), c.versionCommand(), c.benchCommand())
	root.AddCommand(c.changeCommands()...)
	root.AddCommand(more...)
	strict(root)
	return root
}

// strict makes the commands that come with cobra refuse what they do not know, as
// all others do.
func strict(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.SuggestionsMinimumDistance = unknownCommand, nearWord
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = positional(cobra.NoArgs)
			}
		case "help":
			cmd.Args = func(_ *cobra.Command, words []string) error {
				found, rest, err := root.Find(words)
				if err != nil {
					return &usageError{err}
				}
				return unknownCommand(found, rest)
			}
		}
	}
}

// run executes args and returns the exit code. Errors are told on stderr.
func run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	tell(root.ErrOrStderr(), cmd, err)
	return exitCode(err)
}

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// exitError is an error with a code of its own and lines that explain it.
type exitError struct {
	code  int
	err   error
	lines []string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	var usage *usageError
	var exit *exitError
	var refused *admin.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &refused):
		return refusedCode(refused)
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitFailed
}

func refusedCode(e *admin.Error) int {
	switch {
	case e.Kind == admin.NotFound:
		return exitNotFound
	case e.Kind == admin.Conflict, e.Kind == admin.Precondition:
		return exitConflict
	case e.Code == admin.CodeConfigInvalid:
		return exitConfig
	}
	return exitFailed
}

// tell writes an error for a person: what happened, then what to do. Parts of it
// may be an app's own words.
func tell(w io.Writer, cmd *cobra.Command, err error) {
	fmt.Fprintf(w, "usher: %s\n", plain(err.Error()))
	var usage *usageError
	var exit *exitError
	var refused *admin.Error
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(w, "usage: %s\nsee %s --help\n", cmd.UseLine(), cmd.CommandPath())
	case errors.As(err, &exit):
		for _, line := range exit.lines {
			fmt.Fprintln(w, plain(line))
		}
	case errors.As(err, &refused):
		for _, f := range refused.Findings {
			fmt.Fprintln(w, plain(f.String()))
		}
	case errors.Is(err, client.ErrUnreachable):
		fmt.Fprintln(w, "is usher serve running, and may you open its socket? set the address with --admin or USHER_ADMIN")
	}
}

// nearWord is by how many letters a word may be off that was meant for another.
const nearWord = 2

// otherWords are what others call some of the verbs.
func otherWords() map[string][]string {
	return map[string][]string{
		"start": {"serve", "wake"}, "run": {"serve"}, "up": {"serve", "wake"}, "stop": {"pause", "sleep"},
		"list": {"status"}, "ls": {"status"}, "ps": {"status"}, "show": {"status"}, "tail": {"logs"},
		"delete": {"remove"}, "rm": {"remove"}, "unpause": {"resume"}, "undo": {"rollback"}, "check": {"validate"},
		"test": {"validate"}, "doctor": {"validate", "status"},
	}
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	near := otherWords()[args[0]]
	if near == nil {
		near = cmd.SuggestionsFor(args[0])
	}
	if len(near) > 0 {
		return usagef("there is no command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("there is no command %q", args[0])
}

// positional wraps a check of how many positional arguments there are, so that it
// counts as usage. No verb needs more than one.
func positional(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, list []string) error {
		switch {
		case check(cmd, list) == nil:
			return nil
		case len(list) == 0:
			return usagef("%s needs an argument", cmd.Name())
		}
		if cmd.Flags().Lookup("config") != nil {
			return usagef("%s takes the file as a flag: --config %s", cmd.Name(), list[0])
		}
		return usagef("%s does not take so many arguments: %s", cmd.Name(), strings.Join(list, " "))
	}
}

// client makes a client for the address of the flag, the environment or the
// default.
func (c *cli) client() (*client.Client, error) {
	text := c.admin
	if text == "" {
		text = c.getenv("USHER_ADMIN")
	}
	addr := admin.DefaultAddress(c.uid, c.getenv)
	if text != "" {
		var err error
		if addr, err = admin.ParseAddress(text); err != nil {
			return nil, &usageError{err}
		}
	}
	return client.New(addr, client.Options{Token: c.getenv("USHER_ADMIN_TOKEN"), Retry: c.retry}), nil
}

// with runs f with a client and closes it.
func (c *cli) with(f func(*client.Client) error) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return f(cl)
}

// completeApps offers the names of apps for the first argument.
func (c *cli) completeApps(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	_ = c.with(func(cl *client.Client) error { // completion has no one to tell errors to
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
		defer cancel()
		apps, err := cl.Apps(ctx)
		for _, a := range apps {
			names = append(names, a.Name)
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
