package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

func (c *cli) eventsCommand() *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:               "events [APP]",
		Short:             "Show what happened, and with -f what happens",
		Args:              positional(cobra.MaximumNArgs(1)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			f := admin.EventFilter{Follow: follow}
			if len(given) == 1 {
				f.App = given[0]
			}
			show := c.showEvent
			if asJSON {
				show = func(e admin.Event) error { return writeJSONLine(c.stdout, e) }
			}
			return c.with(func(cl *client.Client) error { return c.events(cmd.Context(), cl, f, show) })
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events to come")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (c *cli) events(ctx context.Context, cl *client.Client, f admin.EventFilter, show func(admin.Event) error) error {
	if f.Follow {
		err := cl.Events(ctx, f, func(err error) { c.say("%s; waiting for it", err) }, show)
		if errors.Is(err, context.Canceled) {
			return nil // the way to end it
		}
		return fmt.Errorf("events: %w", err)
	}
	list, err := cl.Recorded(ctx, f)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	for _, e := range list {
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

// showEvent writes one line. Columns have fixed widths: with -f the rest is not
// known yet.
func (c *cli) showEvent(e admin.Event) error {
	_, err := fmt.Fprintf(c.stdout, "%s  %-16s  %-10s  %s\n",
		e.At.UTC().Format(time.RFC3339), dash(plain(e.App)), plain(e.Type), plain(e.Message))
	return err
}
