package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

// changeCommands are the verbs that are one request about one app.
func (c *cli) changeCommands() []*cobra.Command {
	return []*cobra.Command{
		c.plainCommand("wake", "Start a sleeping app now", (*client.Client).Wake),
		c.plainCommand("sleep", "Stop an idle app until its next request", (*client.Client).Sleep),
		c.resumeCommand(),
		c.removeCommand(),
		c.pauseCommand(),
		c.restartCommand(),
		c.rollbackCommand(),
	}
}

// verbCommand is what the verbs have in common; send gets the client when there
// is one.
func (c *cli) verbCommand(verb, short string, send func(context.Context, *client.Client, admin.Change) (admin.Operation, error)) *cobra.Command {
	p := &pending{cli: c, verb: verb, drained: verb == "sleep" || verb == "remove"}
	cmd := &cobra.Command{
		Use:               verb + " APP",
		Short:             short,
		Args:              positional(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			p.app = given[0]
			return c.with(func(cl *client.Client) error {
				p.client = cl
				return p.carry(cmd.Context(), func(ctx context.Context, ch admin.Change) (admin.Operation, error) {
					return send(ctx, cl, ch)
				})
			})
		},
	}
	p.flags(cmd)
	return cmd
}

func (c *cli) plainCommand(verb, short string, send func(*client.Client, context.Context, admin.Change) (admin.Operation, error)) *cobra.Command {
	return c.verbCommand(verb, short, func(ctx context.Context, cl *client.Client, ch admin.Change) (admin.Operation, error) {
		return send(cl, ctx, ch)
	})
}

func (c *cli) removeCommand() *cobra.Command {
	cmd := c.plainCommand("remove", "Drain, stop and forget an app that the config file no longer has", (*client.Client).Remove)
	cmd.Long = `An app that the config file has would come back with the next reload, so it is
not removed: take it out of the file and run usher reload, which drains, stops
and forgets it. Remove does so for an app that usher knows and the file does not.`
	return cmd
}

func (c *cli) pauseCommand() *cobra.Command {
	var maintenance bool
	cmd := c.verbCommand("pause", "Stop serving an app; requests wait, or get its maintenance page",
		func(ctx context.Context, cl *client.Client, ch admin.Change) (admin.Operation, error) {
			return cl.Pause(ctx, admin.PauseRequest{Change: ch, Maintenance: maintenance})
		})
	cmd.Long = `Requests of a paused app wait for usher resume, park_timeout at most. With
--maintenance they are answered with 503 and the app's maintenance_page, or one
that is built in, cached pages too. Either way the process stays, and the pause
lasts over restarts of usher.`
	cmd.Flags().BoolVar(&maintenance, "maintenance", false, "answer 503 at once instead of making requests wait")
	return cmd
}

func (c *cli) resumeCommand() *cobra.Command {
	cmd := c.plainCommand("resume", "Serve a paused app again", (*client.Client).Resume)
	cmd.Long = `A release or a restart that was committed during the pause starts now: resume
shows its steps and ends as usher deploy would.`
	return cmd
}

func (c *cli) restartCommand() *cobra.Command {
	var retry bool
	cmd := c.verbCommand("restart", "Move an app to a new generation of the same release",
		func(ctx context.Context, cl *client.Client, ch admin.Change) (admin.Operation, error) {
			return cl.Restart(ctx, admin.RestartRequest{Change: ch, Retry: retry})
		})
	cmd.Flags().BoolVar(&retry, "retry", false, "forget earlier failures, so that a build that was given up is tried again")
	return cmd
}

func (c *cli) rollbackCommand() *cobra.Command {
	var to uint64
	cmd := c.verbCommand("rollback", "Make a new revision with an older build",
		func(ctx context.Context, cl *client.Client, ch admin.Change) (admin.Operation, error) {
			return cl.Rollback(ctx, admin.RollbackRequest{Change: ch, To: to})
		})
	cmd.Long = `Without --to the build is that of the newest revision before the last that has
served and had another one: after a deploy that failed, the build that serves. The
spec stays that of the config file.`
	cmd.Flags().Uint64Var(&to, "to", 0, "revision whose build is wanted (default the last one that has served with another build)")
	atLeast(cmd.Flags(), "to", &to, 1)
	return cmd
}
