package daemon

import (
	"errors"
	"syscall"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/admin"
)

// publicError gives an error of the control plane its public face.
func publicError(err error) error {
	kinds := []struct {
		err  error
		kind admin.Kind
		code string
	}{
		{activator.ErrNoApp, admin.NotFound, admin.CodeAppNotFound},
		{activator.ErrNotFound, admin.NotFound, ""},
		{activator.ErrVersion, admin.Precondition, admin.CodeVersionMismatch},
		{store.ErrConflict, admin.Precondition, admin.CodeVersionMismatch},
		{activator.ErrConflict, admin.Conflict, ""},
		{store.ErrFenced, admin.Conflict, admin.CodeFenced},
		{activator.ErrClosing, admin.Unavailable, admin.CodeShuttingDown},
		{activator.ErrInvalid, admin.Invalid, ""},
		{artifact.ErrInvalid, admin.Invalid, ""},
		{artifact.ErrTooLarge, admin.TooLarge, admin.CodeUploadTooLarge},
		{syscall.ENOSPC, admin.NoSpace, ""},
		{syscall.EDQUOT, admin.NoSpace, ""},
		{syscall.EROFS, admin.NoSpace, ""},
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &admin.Error{Kind: k.kind, Code: k.code, Detail: err.Error(), Cause: err}
		}
	}
	return err
}

func operation(o activator.Operation, err error) (admin.Operation, error) {
	if err != nil {
		return admin.Operation{}, publicError(err)
	}
	return translate(o), nil
}

func translate(o activator.Operation) admin.Operation {
	out := admin.Operation{
		ID: o.ID, App: o.App, Kind: o.Kind, RequestID: o.RequestID, State: admin.OpState(o.State), Draining: o.Draining,
		Outcome: o.Outcome, Reason: o.Reason, Exit: exit(o.Exit), LogTail: o.LogTail,
		StartedAt: o.StartedAt, EndedAt: some(o.EndedAt), Revision: o.Revision, Generation: o.Generation, Digest: o.Digest, Restart: o.Restart,
		Steps: []admin.Step{},
	}
	for _, s := range o.Steps {
		out.Steps = append(out.Steps, admin.Step{Name: s.Name, At: s.At, Detail: s.Detail})
		out.Step = s.Name
	}
	return out
}

func exit(x *activator.Exit) *admin.Exit {
	if x == nil {
		return nil
	}
	return &admin.Exit{
		Code: x.Code, Signal: x.Signal, Unknown: x.Unknown,
		OOMKills: x.OOM.Kills, OOMLimit: x.OOM.Limit, Text: x.String(),
	}
}

// some is nil for the zero time.
func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// status is one app as the admin API shows it: the activator's word, and what
// the edge counts.
func (c *control) status(s activator.Status) admin.AppStatus {
	out := admin.AppStatus{
		Name: s.Name, State: admin.AppState(s.State), Reason: s.Reason, Maintenance: s.Maintenance, Hosts: []string{},
		Revision: s.Revision, Desired: s.Desired, Good: s.Good, Reported: s.Reported,
		Generation: s.Generation, Build: s.Build, Digest: s.Digest, PID: s.PID, Address: s.Address,
		Mode: s.Mode, External: s.External, Generations: []admin.GenerationStatus{},
		Restarts: s.Restarts, RestartsDone: s.RestartsDone, Failures: uint64(s.Failures), NextRetry: some(s.NextRetry),
		Version: itoa(s.Version), Recovery: s.Recovery,
	}
	f, known := c.d.file.Load().apps.find(s.Name)
	if known {
		out.Hosts = f.hosts
	}
	if s.External {
		out.Isolation.Level = "external"
	} else {
		out.Proof = s.Level
		out.Limits = limits(s)
		out.Isolation = isolation(s, f, known)
	}
	if s.Last.Attempt != 0 {
		out.LastOutcome = lastOutcome(s)
	}
	for _, g := range s.Generations {
		out.Generations = append(out.Generations, admin.GenerationStatus{
			Number: g.Number, Role: g.Role, Revision: g.Revision, State: g.Stage, PID: g.PID, Address: g.Address, StartedAt: some(g.StartedAt),
		})
	}
	if t, err := c.d.act.Totals(s.Name); err == nil { // else it was removed meanwhile
		out.ReceiptMismatches = t.Mismatches
	}
	c.traffic(s, &out)
	return out
}

// isolation is what keeps an app apart whose processes are usher's; f is what the
// file says of it, if it is known there.
func isolation(s activator.Status, f appFile, known bool) admin.Isolation {
	switch {
	case !known:
		return admin.Isolation{Level: s.Level}
	case f.own:
		return admin.Isolation{Level: "none"}
	}
	return admin.Isolation{Level: s.Level, User: f.user}
}

func limits(s activator.Status) *admin.Limits {
	if s.Limits.None() {
		return nil
	}
	l := &admin.Limits{Memory: s.Limits.Memory, PIDs: s.Limits.PIDs, Level: "cgroup", Problem: s.Unlimited}
	if s.Unlimited != "" {
		l.Level = "none"
	}
	return l
}

func lastOutcome(s activator.Status) *admin.Outcome {
	l := s.Last
	return &admin.Outcome{
		Attempt: l.Attempt, Operation: s.LastOperation, Outcome: l.Outcome, Reason: l.Reason, Executed: l.Executed, Restart: l.Restart, Cause: l.Cause, Mode: l.Mode,
		Canary: l.Canary, At: l.At, DrainMS: l.Drain.Milliseconds(), Revision: l.Revision, Generation: l.Generation,
		Exit: exit(s.LastExit), LogTail: s.LastTail,
	}
}

// traffic fills in what the edge counts.
func (c *control) traffic(s activator.Status, out *admin.AppStatus) {
	a := c.d.edge.App(s.Name)
	if a == nil {
		return
	}
	st := a.Stats()
	out.InFlight, out.Parked = int64(st.InFlight), int64(st.Parked)
	if s.State != "awake" || s.IdleTimeout <= 0 || s.External {
		return
	}
	left := s.IdleTimeout
	if act := a.Activity(); act.InFlight == 0 {
		from := s.IdleFrom
		if act.LastRelease.After(from) {
			from = act.LastRelease
		}
		left = max(s.IdleTimeout-time.Since(from), 0)
	}
	ms := left.Milliseconds()
	out.IdleInMS = &ms
}
