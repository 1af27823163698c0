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
	var lines int
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
			return c.with(func(cl *client.Client) error {
				if err := c.events(cmd.Context(), cl, f, lines, show); err != nil {
					return fmt.Errorf("events: %w", err)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events to come")
	cmd.Flags().IntVarP(&lines, "lines", "n", 0, "how many of the past, counted from the newest; 0 shows all that are kept")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	atLeast(cmd.Flags(), "lines", &lines, 0)
	return cmd
}

// events shows the last lines of what is recorded, or all for 0, and then what
// happens.
func (c *cli) events(ctx context.Context, cl *client.Client, f admin.EventFilter, lines int, show func(admin.Event) error) error {
	list, err := cl.Recorded(ctx, f)
	if err != nil {
		return err
	}
	if lines > 0 {
		list = list[max(len(list)-lines, 0):]
	}
	for _, e := range list {
		if err := show(e); err != nil {
			return err
		}
		f.SinceSeq = e.Seq
	}
	if !f.Follow {
		return nil
	}
	err = cl.Events(ctx, f, func(err error) { c.say("%s; waiting for it", err) }, show)
	if errors.Is(err, context.Canceled) {
		return nil // the way to end it
	}
	return err
}

// showEvent writes one line. Columns have fixed widths: with -f the rest is not
// known yet.
func (c *cli) showEvent(e admin.Event) error {
	_, err := fmt.Fprintf(c.stdout, "%s  %-16s  %-10s  %s\n",
		e.At.UTC().Format(time.RFC3339), dash(plain(e.App)), plain(e.Type), plain(e.Message))
	return err
}
