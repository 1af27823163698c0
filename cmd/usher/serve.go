package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/cmd/internal/daemon"
)

// defaultConfig is where a packaged usher has its file.
const defaultConfig = "/etc/usher/usher.toml"

// serveCommand runs the daemon itself.
func serveCommand(w world) *cobra.Command {
	o := daemon.Options{Version: w.version}
	var verbose bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run usher: accept requests, wake, swap and stop apps",
		Args:  positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = logger(w.stderr, verbose)
			o.Started = func(s config.Server, apps int) { announce(w.stderr, s, apps) }
			reload, stopReload := on(syscall.SIGHUP)
			defer stopReload()
			reopen, stopReopen := on(syscall.SIGUSR1)
			defer stopReopen()
			o.Reload, o.Reopen = reload, reopen
			signal.Ignore(syscall.SIGPIPE) // who reads what we print may leave; requests go on
			return serveError(daemon.Run(cmd.Context(), o))
		},
	}
	cmd.Flags().StringVar(&o.Config, "config", defaultConfig, "the config file")
	cmd.Flags().BoolVar(&o.StopApps, "stop-apps", false, "stop the apps when usher stops (default: they keep running and are adopted at the next start)")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "log reads of the admin API too")
	return cmd
}

func on(sig os.Signal) (c chan os.Signal, stop func()) {
	c = make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c, func() { signal.Stop(c) }
}

func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

func announce(w io.Writer, s config.Server, apps int) {
	for _, a := range s.Listen {
		fmt.Fprintf(w, "usher: serving %s on %s\n", plural(apps, "app"), a)
	}
	fmt.Fprintf(w, "usher: admin api on %s\n", s.Admin)
}

// serveError gives an invalid file its exit code and its list of problems.
func serveError(err error) error {
	var problems config.Problems
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &problems):
		lines := make([]string, 0, len(problems))
		for _, p := range problems {
			lines = append(lines, p.String())
		}
		return &exitError{code: exitConfig, err: fmt.Errorf("the config file has %s; nothing was started", plural(len(problems), "problem")), lines: lines}
	}
	return err
}
