package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// CatchAll is the host pattern that takes every request no other host takes.
const CatchAll = "*"

// hostPattern reads one entry of `hosts`: a name, "*.name" for any depth of
// names below (not name itself), "*" for everything, or an IP address. The
// result is in lower case, IPv6 without brackets.
func hostPattern(text string) (pattern, problem string) {
	s := strings.ToLower(text)
	if s == CatchAll {
		return s, ""
	}
	if strings.Contains(s, "://") {
		return "", fmt.Sprintf("%q is a URL; write only the host name", text)
	}
	if below, ok := strings.CutPrefix(s, "*."); ok {
		name, problem := hostName(below)
		if problem != "" {
			return "", problem
		}
		if _, err := netip.ParseAddr(name); err == nil {
			return "", fmt.Sprintf("%q is a wildcard below an IP address; write the address alone", text)
		}
		return "*." + name, ""
	}
	if strings.Contains(s, "*") {
		return "", fmt.Sprintf(`%q has a * in the middle; write a whole first label, "*.example.com", or "*" alone`, text)
	}
	if ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		if ip.Zone() != "" {
			return "", fmt.Sprintf("%q names an interface, which no Host header does; leave %q out", text, "%"+ip.Zone())
		}
		return ip.String(), ""
	}
	return hostName(s)
}

// hostName checks a name in lower case (or an IPv4 address).
func hostName(s string) (name, problem string) {
	switch {
	case s == "":
		return "", "a host name is empty; write one"
	case strings.HasSuffix(s, "."):
		return "", fmt.Sprintf("%q ends in a dot; leave it out, requests for %s. are matched all the same", s, strings.TrimRight(s, "."))
	case strings.ContainsAny(s, "/?#"):
		return "", fmt.Sprintf("%q holds a path; write the host here and the path in `paths`", s)
	case strings.Contains(s, ":"):
		return "", fmt.Sprintf("%q holds a port; leave it out, every port usher listens on serves the host", s)
	case len(s) > 253:
		return "", fmt.Sprintf("%q is longer than the 253 characters of a host name", s)
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if problem := labelProblem(l); problem != "" {
			return "", fmt.Sprintf("%q is no host name: %s", s, problem)
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		if ip, err := netip.ParseAddr(s); err == nil {
			return ip.String(), ""
		}
		return "", fmt.Sprintf("%q ends like an IPv4 address but is none; write four numbers from 0 to 255, or a name", s)
	}
	return s, ""
}

func labelProblem(l string) string {
	switch {
	case l == "":
		return "two dots follow each other, or it starts with one; write one dot between labels"
	case len(l) > 63:
		return "a label is longer than 63 characters; shorten it"
	case l == "xn--":
		return "nothing follows xn--; write the whole ASCII form"
	case l[0] == '-' || l[len(l)-1] == '-':
		return "a label begins or ends with a hyphen; remove it"
	}
	for _, c := range l {
		if c > 0x7f {
			return "it is not ASCII; write the form that browsers send, which begins with xn-- (python3 -c 'print(\"…\".encode(\"idna\"))' prints it)"
		}
		if !isNameByte(byte(c)) {
			return fmt.Sprintf("%q cannot be part of it; use letters, digits, hyphens and dots", c)
		}
	}
	return ""
}

// isNameByte allows the underscore too: DNS names of hosts may not have it, but
// browsers and resolvers take it and people use it.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// pathPrefix reads one entry of `paths`. A prefix takes whole segments: "/api"
// takes /api and /api/x, not /apix. "/api/" is the same and is written "/api".
func pathPrefix(text string) (path, problem string) {
	if problem := targetProblem(text); problem != "" {
		return "", problem
	}
	switch {
	case strings.Contains(text, "?"):
		return "", fmt.Sprintf("%q holds a query; routes look at the path only, remove it", text)
	case strings.Contains(text, "*"):
		return "", fmt.Sprintf("%q holds a *; a path takes everything below it without one, remove it", text)
	}
	path = strings.TrimSuffix(text, "/")
	if path == "" {
		return "/", ""
	}
	for seg := range strings.SplitSeq(path[1:], "/") {
		if seg == "" || seg == "." || seg == ".." {
			return "", fmt.Sprintf("%q has an empty segment or one that is a dot; write the plain path", text)
		}
	}
	return path, ""
}

// targetProblem checks what goes into a request line: a path, maybe with a query.
func targetProblem(s string) string {
	if !strings.HasPrefix(s, "/") {
		return fmt.Sprintf("%q does not begin with a slash; write %q", s, "/"+s)
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ' || c > '~':
			return fmt.Sprintf("%q holds a blank, a control or a character that is not ASCII; percent-encode it", s)
		case c == '#':
			return fmt.Sprintf("%q holds a #, which is never sent to a server; remove it", s)
		}
	}
	return ""
}
