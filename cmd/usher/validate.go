package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/cmd/internal/config"
)

// validation is the JSON of usher validate.
type validation struct {
	File     string          `json:"file"`
	Valid    bool            `json:"valid"`
	Apps     int             `json:"apps"` // 0 if the file is not valid
	Problems []admin.Finding `json:"problems"`
	Warnings []admin.Finding `json:"warnings"`
}

// validateCommand checks a config file as serve would. env is the machine that
// the file is for.
func validateCommand(w world, env func() config.Env) *cobra.Command {
	c := &cli{world: w}
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a config file and show everything that is wrong with it",
		Long: `Validate reads the config file as usher serve would, on this machine and as
this user, and shows every problem with its place. It starts and changes
nothing and needs no usher that runs. An invalid file exits with 5; warnings
do not.`,
		Args: positional(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			file, err := config.Load(path, env())
			if asJSON {
				return c.validateJSON(path, file, err)
			}
			return c.validateText(path, file, err)
		},
	}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "the config file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) validateText(path string, file *config.File, err error) error {
	if err != nil {
		return invalid(path, err, true)
	}
	for _, w := range file.Warnings {
		c.say("warning: %s", w)
	}
	fmt.Fprintf(c.stdout, "%s: ok (%s)\n", path, plural(len(file.Apps), "app"))
	return nil
}

func (c *cli) validateJSON(path string, file *config.File, err error) error {
	v := validation{File: path, Problems: []admin.Finding{}, Warnings: []admin.Finding{}}
	var problems config.Problems
	switch {
	case err == nil:
		v.Valid, v.Apps, v.Warnings = true, len(file.Apps), appendFindings(v.Warnings, file.Warnings)
	case errors.As(err, &problems):
		v.Problems = appendFindings(v.Problems, problems)
	default:
		return err
	}
	if werr := writeJSON(c.stdout, v); werr != nil {
		return werr
	}
	if err != nil {
		return invalid(path, err, false)
	}
	return nil
}

// invalid is the error of an invalid file, with its problems if they have not
// been shown yet.
func invalid(path string, err error, show bool) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	exit := &exitError{code: exitConfig, err: fmt.Errorf("%s: %s", path, plural(len(problems), "problem"))}
	for _, p := range problems {
		if show {
			exit.lines = append(exit.lines, p.String())
		}
	}
	return exit
}

func appendFindings(list []admin.Finding, problems []config.Problem) []admin.Finding {
	for _, p := range problems {
		list = append(list, admin.Finding{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message})
	}
	return list
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
