package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end of a unix socket, as the kernel knew it
// when it connected.
type peer struct {
	uid, gid uint32
	pid      int32
	// unix is false for TCP, where nothing is known.
	unix bool
	// err is set if the kernel did not tell; such a peer is refused.
	err error
}

type peerKey struct{}

// withPeer is the ConnContext of the server.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var p peer
	if uc, ok := c.(*net.UnixConn); ok {
		p = peerOf(uc)
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func peerFrom(ctx context.Context) peer {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		p.err = errors.New("no connection")
	}
	return p
}

func peerOf(c *net.UnixConn) peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{unix: true, err: err}
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return peer{unix: true, err: err}
	}
	return peer{uid: cred.Uid, gid: cred.Gid, pid: cred.Pid, unix: true}
}

// guarded lets a request through to next if its sender may use the admin API.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.admit(r); err != nil {
			w.Header().Set("Connection", "close")
			writeProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) admit(r *http.Request) error {
	p := peerFrom(r.Context())
	switch {
	case p.err != nil:
		return &Error{
			Kind: Forbidden, Code: CodePeerRefused, Cause: p.err,
			Detail: "the kernel did not tell who is asking",
		}
	case p.unix:
		return errors.Join(s.admitUID(p.uid), admitOrigin(r))
	}
	if err := s.admitHost(r.Host); err != nil {
		return err
	}
	if err := admitOrigin(r); err != nil {
		return err
	}
	return s.admitToken(r)
}

// admitUID refuses apps: an app that can reach the socket could replace itself
// and its neighbours.
func (s *Server) admitUID(uid uint32) error {
	if uid == s.uid || s.opts.Forbid == nil || !s.opts.Forbid(uid) {
		return nil
	}
	return &Error{
		Kind: Forbidden, Code: CodePeerRefused,
		Detail: fmt.Sprintf("uid %d is the user of an app", uid),
		Hint:   "run usher as root, as usher's own user or as a member of admin_group",
	}
}

// admitHost stops DNS rebinding: the page of an attacker can point its own name
// at this address, but it cannot send an address, or a name of ours, as Host.
func (s *Server) admitHost(host string) error {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if name == "localhost" || slices.ContainsFunc(s.opts.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return nil
	}
	return &Error{
		Kind: Forbidden, Code: CodeHostRefused,
		Detail: fmt.Sprintf("the admin api is not known as %q", host),
		Hint:   "use the address, or add the name to the admin hosts",
	}
}

// admitOrigin refuses what a browser sends on behalf of another site.
func admitOrigin(r *http.Request) error {
	foreign := false
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		foreign = err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		foreign = true
	}
	if !foreign {
		return nil
	}
	return &Error{
		Kind: Forbidden, Code: CodeOriginRefused,
		Detail: "the request comes from a page of another site",
	}
}

func (s *Server) admitToken(r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	// Hashes have one length, so the comparison tells nothing of the token's.
	hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
	same := subtle.ConstantTimeCompare(hash[:], s.tokenHash[:]) == 1
	if s.opts.Token != "" && same && strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return &Error{
		Kind: Unauthorized, Detail: "the token is missing or wrong",
		Hint: "send Authorization: Bearer TOKEN (the CLI takes it from USHER_ADMIN_TOKEN)",
	}
}
