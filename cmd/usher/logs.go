package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

func (c *cli) logsCommand() *cobra.Command {
	var req admin.LogRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "logs APP",
		Short:             "Show what an app wrote to stdout and stderr",
		Args:              positional(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			req.App = given[0]
			return c.with(func(cl *client.Client) error {
				if err := c.logs(cmd.Context(), cl, req, asJSON); err != nil {
					return fmt.Errorf("logs %s: %w", req.App, err)
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "go on with what is written later")
	f.IntVarP(&req.Lines, "lines", "n", 100, "lines of the past to show")
	f.Uint64Var(&req.Generation, "generation", 0, "which run (default the newest that has written anything; with -f all that write)")
	atLeast(f, "lines", &req.Lines, 0)
	atLeast(f, "generation", &req.Generation, 1)
	f.BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (c *cli) logs(ctx context.Context, cl *client.Client, req admin.LogRequest, asJSON bool) error {
	src, err := cl.Logs(ctx, req)
	if err != nil {
		return err
	}
	defer src.Close()
	seen := &metered{Reader: src}
	if asJSON {
		err = c.logLines(seen, req.App)
	} else {
		_, err = io.Copy(c.stdout, seen)
	}
	switch {
	case !req.Follow:
		if err == nil && seen.bytes == 0 && req.Lines > 0 {
			c.say("%s: nothing is kept of what it wrote: it has not run yet, wrote nothing, or is a target", req.App)
		}
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return nil // the way to end it
	case err == nil:
		return fmt.Errorf("%w: it ended the log", client.ErrLost)
	}
	return err
}

// metered counts what was read.
type metered struct {
	io.Reader
	bytes int
}

func (r *metered) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// logLine is the JSON of one line.
type logLine struct {
	App  string `json:"app"`
	Line string `json:"line"`
}

func (c *cli) logLines(src io.Reader, app string) error {
	r := bufio.NewReaderSize(src, 64<<10)
	for {
		text, err := r.ReadString('\n')
		if text != "" {
			line := logLine{App: app, Line: strings.TrimSuffix(text, "\n")}
			if werr := writeJSONLine(c.stdout, line); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
