package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

func (c *cli) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "status [APP]",
		Short:             "Show all apps, or one in full",
		Args:              positional(cobra.MaximumNArgs(1)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.with(func(cl *client.Client) error {
				var err error
				if len(given) == 1 {
					err = c.statusOf(cmd.Context(), cl, given[0], asJSON)
				} else {
					err = c.statusAll(cmd.Context(), cl, asJSON)
				}
				if err != nil {
					return fmt.Errorf("status: %w", err)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// statusList is the JSON of usher status without an app.
type statusList struct {
	Server admin.ServerStatus `json:"server"`
	Apps   []admin.AppStatus  `json:"apps"`
}

func (c *cli) statusAll(ctx context.Context, cl *client.Client, asJSON bool) error {
	server, err := cl.Server(ctx)
	if err != nil {
		return err
	}
	apps, err := cl.Apps(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.stdout, statusList{Server: server, Apps: apps})
	}
	for _, w := range server.Warnings {
		c.say("warning: %s", w)
	}
	if len(apps) == 0 {
		c.say("there are no apps; add one to the config file and run usher reload")
		return nil
	}
	return c.showTable(apps)
}

func (c *cli) showTable(apps []admin.AppStatus) error {
	t := newTable(c.stdout)
	t.row("APP", "STATE", "REVISION", "GENERATION", "BUILD", "PID", "ADDRESS", "IN-FLIGHT", "PARKED", "LAST OUTCOME")
	for _, a := range apps {
		t.row(a.Name, stateText(a), number(a.Revision), number(a.Generation), dash(a.Build), number(uint64(a.PID)),
			dash(a.Address), strconv.FormatInt(a.InFlight, 10), strconv.FormatInt(a.Parked, 10), c.lastText(a.LastOutcome))
	}
	return t.flush()
}

func (c *cli) statusOf(ctx context.Context, cl *client.Client, name string, asJSON bool) error {
	a, err := cl.App(ctx, name)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.stdout, a)
	}
	t := newTable(c.stdout)
	for _, p := range c.facts(a) {
		t.row(p[0], p[1])
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(a.Recovery) > 0 {
		fmt.Fprintln(c.stdout, "\nfound when usher started, not as it was recorded:")
	}
	for _, text := range a.Recovery {
		fmt.Fprintf(c.stdout, "  %s\n", plain(text))
	}
	c.showOutcome(a.LastOutcome)
	return c.showGenerations(a.Generations)
}

// facts are the lines about one app; those without a value are left out.
func (c *cli) facts(a admin.AppStatus) [][2]string {
	all := [][2]string{
		{"app", a.Name},
		{"state", stateText(a)},
		{"reason", a.Reason},
		{"hosts", strings.Join(a.Hosts, ", ")},
		{"revision", fmt.Sprintf("%d (desired %d, good %d, reported %d)", a.Revision, a.Desired, a.Good, a.Reported)},
		{"generation", nonzero(a.Generation)},
		{"build", a.Digest},
		{"pid", nonzero(uint64(a.PID))},
		{"address", a.Address},
		{"requests", fmt.Sprintf("%d in flight, %d parked", a.InFlight, a.Parked)},
		{"swap mode", modeText(a)},
		{"isolation", isolationText(a.Isolation)},
		{"limits", limitsText(a.Limits)},
		{"stop proof", a.Proof},
		{"restarts", nonzero(a.Restarts)},
		{"failures", nonzero(a.Failures)},
		{"next retry", c.ahead(a.NextRetry)},
		{"idle sleep", idleText(a.IdleInMS)},
		{"receipts", mismatchText(a)},
		{"version", a.Version},
	}
	kept := all[:0]
	for _, p := range all {
		if p[1] != "" {
			kept = append(kept, p)
		}
	}
	return kept
}

func (c *cli) showOutcome(o *admin.Outcome) {
	if o == nil {
		return
	}
	fmt.Fprintf(c.stdout, "\nlast attempt (%d, %s%s): %s%s, %s\n", o.Attempt, o.Cause, canaryText(o.Canary), o.Outcome, because(o.Reason), c.ago(o.At))
	if o.Exit != nil {
		fmt.Fprintf(c.stdout, "  %s\n", o.Exit.Text)
	}
	if !o.Executed && o.Outcome != "done" {
		fmt.Fprintln(c.stdout, "  nothing of the build ran")
	}
	if o.DrainMS > 0 {
		fmt.Fprintf(c.stdout, "  drained in %s\n", span(time.Duration(o.DrainMS)*time.Millisecond))
	}
	for _, l := range o.LogTail {
		fmt.Fprintf(c.stdout, "  | %s\n", plain(l))
	}
}

func (c *cli) showGenerations(list []admin.GenerationStatus) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintln(c.stdout)
	t := newTable(c.stdout)
	t.row("GENERATION", "ROLE", "STATE", "REVISION", "PID", "ADDRESS", "IN-FLIGHT", "STARTED")
	for _, g := range list {
		started := "-"
		if g.StartedAt != nil {
			started = c.ago(*g.StartedAt)
		}
		t.row(number(g.Number), g.Role, dash(g.State), number(g.Revision), number(uint64(g.PID)), dash(g.Address),
			strconv.FormatInt(g.InFlight, 10), started)
	}
	return t.flush()
}

func stateText(a admin.AppStatus) string {
	if a.Maintenance {
		return string(a.State) + " (maintenance)"
	}
	return string(a.State)
}

func modeText(a admin.AppStatus) string {
	if a.External {
		return a.Mode + " (external target)"
	}
	return a.Mode
}

func mismatchText(a admin.AppStatus) string {
	if a.ReceiptMismatches == 0 {
		return ""
	}
	return fmt.Sprintf("%d DO NOT ADD UP: see usher receipts %s", a.ReceiptMismatches, a.Name)
}

func isolationText(i admin.Isolation) string {
	if i.User == "" {
		return i.Level
	}
	return i.Level + ", user " + i.User
}

// bytesText is a size in the largest unit that leaves no rest.
func bytesText(n uint64) string {
	for _, u := range []struct {
		name string
		size uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n%u.size == 0 {
			return number(n/u.size) + u.name
		}
	}
	return number(n) + "B"
}

func limitsText(l *admin.Limits) string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.Memory != 0 {
		parts = append(parts, "memory "+bytesText(l.Memory))
	}
	if l.PIDs != 0 {
		parts = append(parts, "pids "+number(l.PIDs))
	}
	text := strings.Join(parts, ", ")
	if l.Level == "none" {
		text += " (not in effect: " + l.Problem + ")"
	}
	return text
}

func idleText(ms *int64) string {
	if ms == nil {
		return ""
	}
	return "in " + span(time.Duration(*ms)*time.Millisecond)
}

func (c *cli) lastText(o *admin.Outcome) string {
	if o == nil {
		return "-"
	}
	return o.Outcome + ", " + c.ago(o.At)
}

func (c *cli) ago(at time.Time) string { return span(c.now().Sub(at)) + " ago" }

func (c *cli) ahead(at *time.Time) string {
	if at == nil {
		return ""
	}
	return "in " + span(max(0, at.Sub(c.now())))
}

// table aligns columns. What that makes of a cell is several small writes.
type table struct {
	w   *tabwriter.Writer
	out *bufio.Writer
}

func newTable(w io.Writer) table {
	out := bufio.NewWriter(w)
	return table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), out}
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = plain(cell)
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t table) flush() error { return errors.Join(t.w.Flush(), t.out.Flush()) }
