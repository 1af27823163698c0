package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

// receipts is one call of the verb.
type receipts struct {
	*cli
	app               string
	limit             int
	attempt, revision uint64
	json              bool
}

func (c *cli) receiptsCommand() *cobra.Command {
	q := &receipts{cli: c}
	cmd := &cobra.Command{
		Use:   "receipts APP",
		Short: "Show what became of the requests of each swap",
		Long: `Receipts shows the account of each attempt at moving an app to another
generation, the newest last: every request that was accepted in its window, from
the admission of the attempt to the end of the drain, by how it ended. Each number
is counted by itself, and a receipt whose sum does not match says so. A wake has
no receipt.`,
		Args:              positional(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			q.app = given[0]
			return c.with(func(cl *client.Client) error {
				if err := q.run(cmd.Context(), cl); err != nil {
					return fmt.Errorf("receipts: %w", err)
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.IntVarP(&q.limit, "lines", "n", 5, "how many, counted from the newest; 0 shows all that are kept")
	f.Uint64Var(&q.attempt, "attempt", 0, "only that of this attempt (the number of its generation)")
	f.Uint64Var(&q.revision, "revision", 0, "only those of this revision")
	f.BoolVar(&q.json, "json", false, "print JSON, the newest first")
	atLeast(f, "lines", &q.limit, 0)
	atLeast(f, "attempt", &q.attempt, 1)
	atLeast(f, "revision", &q.revision, 1)
	return cmd
}

func (q *receipts) run(ctx context.Context, cl *client.Client) error {
	var list []admin.Receipt
	var err error
	if q.attempt != 0 {
		var one admin.Receipt
		one, err = cl.Receipt(ctx, q.app, q.attempt)
		list = []admin.Receipt{one}
	} else {
		list, err = cl.Receipts(ctx, q.app, q.limit, q.revision)
	}
	switch {
	case err != nil:
		return err
	case q.json:
		return writeJSON(q.stdout, struct {
			Receipts []admin.Receipt `json:"receipts"`
		}{list})
	case len(list) == 0:
		if q.revision != 0 {
			q.say("%s has no receipt of revision %d; the last 20 are kept, and a wake has none; see usher receipts %s", q.app, q.revision, q.app)
			return nil
		}
		q.say("there are no receipts of %s: the next deploy or restart makes one", q.app)
		return nil
	}
	for i, rc := range slices.Backward(list) {
		if err := q.show(rc); err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(q.stdout)
		}
	}
	return nil
}

// show writes one block.
func (c *cli) show(rc admin.Receipt) error {
	fmt.Fprintln(c.stdout, plain(c.headline(rc)))
	if rc.Counts != nil {
		for _, m := range rc.Counts.Mismatch {
			fmt.Fprintf(c.stdout, "  !! DOES NOT ADD UP: %s\n", plain(m))
		}
	}
	if rc.Incomplete != "" {
		fmt.Fprintf(c.stdout, "  incomplete: %s\n", plain(rc.Incomplete))
	}
	t := newTable(c.stdout)
	for _, p := range receiptFacts(rc) {
		if p[1] != "" {
			t.row("  "+p[0], p[1])
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if rc.Counts == nil {
		return nil
	}
	return showCounts(c.stdout, rc.Counts)
}

func (c *cli) headline(rc admin.Receipt) string {
	s := fmt.Sprintf("attempt %d: %s of revision %d%s, %s: %s%s", rc.Attempt, rc.Cause, rc.Revision, canaryText(rc.Canary), rc.Mode, dash(rc.Outcome), because(rc.Reason))
	switch {
	case rc.State == admin.ReceiptOpen:
		return s + " (under way)"
	case rc.ClosedAt != nil:
		return s + ", " + c.ago(*rc.ClosedAt)
	}
	return s
}

func canaryText(is bool) string {
	if is {
		return ", a canary"
	}
	return ""
}

// receiptFacts are what is known beside the counts.
func receiptFacts(rc admin.Receipt) [][2]string {
	build := [2]string{"build", rc.Digest}
	if rc.Digest == "" {
		build = [2]string{"target", rc.Build}
	}
	facts := [][2]string{build, {"window", windowText(rc)}, {"from", fromText(rc.From)}}
	if rc.Outcome != "" && rc.Outcome != "done" && !rc.Executed {
		facts = append(facts, [2]string{"executed", "no: it is proven that nothing of the build ran"})
	}
	if rc.Tries > 1 && rc.FirstTriedAt != nil {
		facts = append(facts, [2]string{"tries", fmt.Sprintf("%d since %s, all with this end; the rest is of the last one", rc.Tries, rc.FirstTriedAt.UTC().Format(time.RFC3339))})
	}
	if rc.CacheFrom != rc.CacheTo {
		facts = append(facts, [2]string{"cache generation", rc.CacheFrom + " -> " + rc.CacheTo})
	}
	if h := rc.Health; h != nil {
		facts = append(facts, [2]string{"health", healthText(h)})
	}
	return append(facts, [2]string{"steps", stepsText(rc.Steps)}, [2]string{"stop proof", rc.Proof})
}

func windowText(rc admin.Receipt) string {
	switch {
	case rc.OpenedAt == nil:
		return ""
	case rc.ClosedAt == nil:
		return "since " + rc.OpenedAt.UTC().Format(time.RFC3339)
	}
	return rc.OpenedAt.UTC().Format(time.RFC3339) + ", " + span(rc.ClosedAt.Sub(*rc.OpenedAt))
}

func fromText(p *admin.Predecessor) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("generation %d, revision %d%s", p.Generation, p.Revision, in("build ", p.Build))
}

// in is text in brackets, if there is any.
func in(what, text string) string {
	if text == "" {
		return ""
	}
	return " (" + what + text + ")"
}

func healthText(h *admin.HealthProof) string {
	s := counted(uint64(h.Tries), "try", "tries")
	if h.PassedMS > 0 {
		s += ", passed after " + millis(h.PassedMS)
	} else {
		s += ", never passed"
	}
	if h.Exit != "" {
		s += ", ended with " + h.Exit
	}
	return s + in("", h.Last)
}

func stepsText(steps []admin.ReceiptStep) string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Name+" "+millis(s.TookMS))
	}
	return strings.Join(all, ", ")
}

// millis is a short duration as people say it.
func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return span(d)
}

func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// showCounts writes the sum, line by line. What is empty is left out, but never
// what should be empty.
func showCounts(w io.Writer, c *admin.ReceiptCounts) error {
	t := newTable(w)
	line := func(n uint64, what, more string) {
		t.row(fmt.Sprintf("  %9d", n), what+in("", more))
	}
	line(c.Accepted, "accepted", "")
	line(c.ServedByIncumbent, "= served by the incumbent", "")
	line(c.ServedBySuccessor, "+ served by the successor", "")
	if p := c.Park; p != nil {
		line(c.ServedAfterParking, "+ parked, then served",
			fmt.Sprintf("waited p50 %s, p99 %s, max %s", millis(p.P50MS), millis(p.P99MS), millis(p.MaxMS)))
	}
	if c.Cached > 0 {
		line(c.Cached, "+ from the cache", "")
	}
	line(c.Refused, "+ refused", byText(c.RefusedBy))
	line(c.Failed, "+ failed", byText(c.FailedBy))
	if c.ClientGone > 0 {
		line(c.ClientGone, "+ client gone", "")
	}
	if c.Own > 0 {
		line(c.Own, "+ answered by usher itself", "")
	}
	line(c.StillOpen, "+ still open at the close", "")
	if u := c.Upgraded; u.Before+u.Opened > 0 {
		line(u.Before+u.Opened, "upgraded connections", upgradedText(u))
	}
	return t.flush()
}

func upgradedText(u admin.UpgradeCounts) string {
	text := fmt.Sprintf("%d from before", u.Before)
	for _, p := range []struct {
		n    uint64
		what string
	}{
		{u.ClosedByClient, "closed by the client"},
		{u.ClosedByApp, "closed by the app"},
		{u.ClosedByUsher, "closed by usher with 1012"},
		{u.Cut, "cut"},
		{u.StillOpen, "still open"},
	} {
		if p.n > 0 {
			text += fmt.Sprintf(", %d %s", p.n, p.what)
		}
	}
	return text
}

func byText(by map[string]uint64) string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%d %s", by[reason], reason))
	}
	return strings.Join(all, ", ")
}

// receiptPatience is how long a change that waited for its drain waits for its
// receipt, which takes a moment longer.
const receiptPatience = 5 * time.Second

// showReceipt says in one line what became of the requests of a change.
func (p *pending) showReceipt(ctx context.Context, op admin.Operation) {
	if op.Generation == 0 {
		return // no attempt was made
	}
	ctx, cancel := context.WithTimeout(ctx, receiptPatience)
	defer cancel()
	pause := time.NewTicker(lookAgain)
	defer pause.Stop()
	for {
		rc, err := p.client.Receipt(ctx, p.app, op.Generation)
		if err == nil && rc.State != admin.ReceiptOpen {
			p.say("%s: receipt    %s", p.app, rc.Summary)
			return
		}
		if err != nil && !client.Passing(err) {
			return // an attempt without one: the change itself is done
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			p.say("%s: its receipt is not closed yet; see usher receipts %s --attempt %d", p.app, p.app, op.Generation)
			return
		}
	}
}
