package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/client"
)

// deploy is one call of the verb.
type deploy struct {
	pending
	artifact string
	target   string
	mode     string
	wait     string
	canary   bool
}

func (c *cli) deployCommand() *cobra.Command {
	d := &deploy{pending: pending{cli: c, verb: "deploy"}}
	cmd := &cobra.Command{
		Use:   "deploy APP [ARTIFACT]",
		Short: "Move an app to a new build, or to a new target",
		Long: `Deploy uploads ARTIFACT (an executable file or a directory), commits a new
revision and starts it; ARTIFACT may also be the digest of a build that usher
keeps. It returns when new requests are served by the new build, or with
--wait=drained when the old one is gone, and then says what became of the requests
that came in meanwhile (see usher receipts). A build that does not get healthy
changes nothing and exits with 1. Leaving early never cancels a deploy.`,
		Args:              positional(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: c.completeApps,
		RunE: func(cmd *cobra.Command, given []string) error {
			d.app = given[0]
			if len(given) == 2 {
				d.artifact = given[1]
			}
			return d.run(cmd.Context())
		},
	}
	d.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&d.mode, "mode", "", "overlap or hold; default is what the app's spec says")
	f.StringVar(&d.target, "target", "", "new address of an app that usher does not start: host:port or unix:/path")
	f.BoolVar(&d.canary, "canary", false, "the new build must stay alive for the app's settle time before it is switched to")
	f.StringVar(&d.wait, "wait", "switched", "when to return: switched or drained")
	oneOf(f, "mode", &d.mode, "overlap", "hold")
	oneOf(f, "wait", &d.wait, "switched", "drained")
	return cmd
}

func (d *deploy) run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.with(func(cl *client.Client) error {
		d.client = cl
		digest, err := d.stage(ctx)
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("deploy %s: stopped before anything was committed", d.app)
		}
		if err != nil {
			return fmt.Errorf("deploy %s: %w", d.app, err)
		}
		return d.carry(ctx, func(ctx context.Context, ch admin.Change) (admin.Operation, error) {
			return cl.Deploy(ctx, admin.DeployRequest{Change: ch, Digest: digest, Target: d.target, Mode: d.mode, Canary: d.canary})
		})
	})
}

func (d *deploy) check() error {
	if (d.artifact == "") == (d.target == "") {
		return usagef("deploy needs either an artifact or --target")
	}
	d.drained = d.wait == "drained"
	return nil
}

// stage makes usher have the build and returns its digest; empty for a target.
func (d *deploy) stage(ctx context.Context) (string, error) {
	if d.target != "" {
		return "", nil
	}
	if _, err := os.Stat(d.artifact); err != nil {
		if strings.HasPrefix(d.artifact, "sha256:") && errors.Is(err, fs.ErrNotExist) {
			return d.artifact, nil
		}
		return "", fmt.Errorf("open artifact: %w", err)
	}
	st, err := d.client.App(ctx, d.app)
	if err == nil {
		err = d.refused(st)
	}
	if err != nil {
		return "", err
	}
	kind, body, err := d.pack(ctx, d.artifact)
	if err != nil {
		return "", fmt.Errorf("pack artifact: %w", err)
	}
	defer body.Close()
	d.say("%s: uploading  %s", d.app, d.artifact)
	build, err := d.client.Upload(ctx, admin.UploadRequest{App: d.app, Kind: kind, Body: body})
	if err != nil {
		return "", fmt.Errorf("upload %s: %w", d.artifact, err)
	}
	d.say("%s: uploaded   %s", d.app, build.Digest)
	return build.Digest, nil
}

// refused says before a long upload, not after it, what usher would refuse. Usher
// looks again: the app may be another one by then.
func (d *deploy) refused(st admin.AppStatus) error {
	switch {
	case st.External:
		return &admin.Error{
			Kind: admin.Conflict, Detail: "it is a target in the config file, whose process usher does not start",
			Hint: "deploy it with --target ADDR",
		}
	case d.mode == "overlap" && st.Mode != "overlap":
		return &admin.Error{
			Kind: admin.Conflict, Detail: "it swaps by hold, so that two of it never run at once",
			Hint: "leave --mode out, or change swap (or listen) in the config file",
		}
	case d.ifMatch != "" && d.ifMatch != "*" && d.ifMatch != st.Version:
		return &admin.Error{
			Kind: admin.Precondition, Code: admin.CodeVersionMismatch,
			Detail: fmt.Sprintf("it has version %q, not %q", st.Version, d.ifMatch), Hint: "read it again",
		}
	}
	return nil
}
