package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

func (c *cli) reloadCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Apply a changed config file, all of it or nothing",
		Args:  positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(func(cl *client.Client) error {
				res, err := cl.Reload(cmd.Context())
				if err != nil {
					return fmt.Errorf("reload: %w", err)
				}
				for _, w := range res.Warnings {
					c.say("warning: %s", w)
				}
				if asJSON {
					return writeJSON(c.stdout, res)
				}
				c.showReload(res)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func (c *cli) showReload(res admin.ReloadResult) {
	for _, part := range []struct {
		word string
		apps []string
	}{{"added", res.Added}, {"changed", res.Changed}, {"removed", res.Removed}} {
		if len(part.apps) > 0 {
			fmt.Fprintf(c.stdout, "%s: %s\n", part.word, strings.Join(part.apps, ", "))
		}
	}
	fmt.Fprintf(c.stdout, "unchanged: %d\n", len(res.Unchanged))
}

func (c *cli) purgeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "purge APP",
		Short:             "Drop everything the cache holds of an app",
		Args:              positional(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(func(cl *client.Client) error {
				if err := cl.Purge(cmd.Context(), given[0]); err != nil {
					return fmt.Errorf("purge %s: %w", given[0], err)
				}
				c.say("%s: purged", given[0])
				return nil
			})
		},
	}
}

// versions is the JSON of usher version.
type versions struct {
	Client admin.VersionInfo  `json:"client"`
	Server *admin.VersionInfo `json:"server,omitempty"`
}

func (c *cli) versionCommand() *cobra.Command {
	var asJSON, local bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of the usher that runs",
		Args:  positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: c.version}
			err := c.with(func(cl *client.Client) error {
				if local {
					return nil
				}
				server, err := cl.Version(cmd.Context())
				if err == nil {
					v.Server = &server
				}
				return err
			})
			// Without a daemon there is still a version to tell.
			if err != nil && !errors.Is(err, client.ErrUnreachable) {
				return fmt.Errorf("version of the server: %w", err)
			}
			if asJSON {
				return writeJSON(c.stdout, v)
			}
			fmt.Fprintf(c.stdout, "usher %s\n", versionLine(v.Client))
			if v.Server != nil && *v.Server != v.Client {
				fmt.Fprintf(c.stdout, "running: usher %s\n", versionLine(*v.Server))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&local, "local", false, "do not ask the usher that runs")
	return cmd
}

func versionLine(v admin.VersionInfo) string {
	line := v.Version
	if v.Commit != "" {
		line += " (" + v.Commit + ")"
	}
	if v.Go != "" {
		line += " " + v.Go
	}
	return line
}
