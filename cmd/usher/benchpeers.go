package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/bench/peers"
)

// benchPeers is what the flags of one comparison say.
type benchPeers struct {
	*cli
	plan      peers.Plan
	accessLog bool
	show      bool
	check     bool
	json      bool
	page      string
}

func (c *cli) benchPeersCommand() *cobra.Command {
	b := &benchPeers{cli: c}
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Compare what a request costs in usher and in other proxies",
		Long: `Peers starts an usher of its own, and whichever of ` + strings.Join(peers.Names()[1:], ", ") + `
it finds on PATH, in front of one origin, each with the configuration that is
best for it (--show-config), and sends all of them the same load, in rounds.
Usher has everything on and routes among 1,000 hosts.

For each work it prints requests/s, the CPU time per request of the whole
process tree, and latencies; then the ratios of usher to each peer, taken
within rounds, with confidence bounds. A bar is met if the median is within it,
missed if the lower bound is beyond it, else unclear.

It exits with 1 if usher failed a request, and with --check if a bar is missed.

Works: ` + strings.Join(workIDs(), ", ") + `.`,
		Example: "  usher bench peers --rounds 15 --html peers.html\n  usher bench peers --peers nginx,haproxy --work small-64,cached --check",
		Args:    positional(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.IntVar(&b.plan.Rounds, "rounds", 9, "how often each peer does each work; bounds need 5, better 9")
	f.DurationVar(&b.plan.Duration, "duration", time.Second, "length of each measurement")
	f.StringSliceVar(&b.plan.Works, "work", nil, "works to do, by name; default all")
	f.StringSliceVar(&b.plan.Peers, "peers", nil, "peers to compare with, by name; default all that are found")
	f.BoolVar(&b.accessLog, "access-log", true, "all write an access log; with =false none does")
	f.BoolVar(&b.show, "show-config", false, "print how each peer would be run, and run nothing")
	f.BoolVar(&b.check, "check", false, "exit with 1 if a bar is missed")
	f.BoolVar(&b.json, "json", false, "print the report as JSON")
	f.StringVar(&b.page, "html", "", "write a report with pictures to this HTML file")
	atLeast(f, "rounds", &b.plan.Rounds, 1)
	moreThanNothing(f, "duration", &b.plan.Duration)
	return cmd
}

func workIDs() []string {
	var ids []string
	for _, w := range peers.Works() {
		ids = append(ids, w.ID)
	}
	return ids
}

func (b *benchPeers) run(ctx context.Context) error {
	b.plan.NoAccessLog = !b.accessLog
	if b.show && b.json {
		return usagef("--show-config prints no JSON; the report with --json has the configurations")
	}
	if err := b.plan.Check(); err != nil {
		return &usageError{err}
	}
	self, err := b.program()
	if err != nil {
		return fmt.Errorf("bench peers: %w", err)
	}
	b.plan.Usher, b.plan.Say = self, b.say
	if b.show {
		return b.showConfig()
	}
	files, err := openReports(reportFile[*peers.Report]{b.page, (*peers.Report).WriteHTML})
	if err != nil {
		return err
	}
	report, err := peers.Compare(ctx, b.plan)
	if err != nil {
		files.discard()
		return fmt.Errorf("bench peers: %w", err)
	}
	write := report.WriteText
	if b.json {
		write = report.WriteJSON
	}
	return firstOf(tellReport(b.cli, write, files, report), b.verdict(report))
}

// verdict is an error if usher failed, or missed a bar that was to be kept.
func (b *benchPeers) verdict(r *peers.Report) error {
	switch {
	case r.Failures() > 0:
		return fmt.Errorf("bench peers: usher failed %s", plural(r.Failures(), "request"))
	case r.Cut != "":
		return fmt.Errorf("bench peers: ended early: %s", r.Cut)
	case b.check && r.Missed() > 0:
		return fmt.Errorf("bench peers: %s missed", plural(r.Missed(), "bar"))
	}
	return nil
}

func (b *benchPeers) showConfig() error {
	all, err := peers.Configurations(b.plan)
	if err != nil {
		return fmt.Errorf("bench peers: %w", err)
	}
	var text strings.Builder
	for _, p := range all {
		fmt.Fprintf(&text, "## %s: %s\n", p.Name, cmp.Or(p.Skipped, p.Version))
		if p.Note != "" {
			fmt.Fprintf(&text, "# %s\n", p.Note)
		}
		for _, line := range p.Commands {
			fmt.Fprintf(&text, "$ %s\n", line)
		}
		for _, f := range p.Files {
			fmt.Fprintf(&text, "# %s\n%s", f.Name, f.Text)
		}
		text.WriteString("\n")
	}
	_, err = io.WriteString(b.stdout, text.String())
	return err
}
