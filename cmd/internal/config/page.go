package config

import (
	"path/filepath"
	"strings"
)

// maxPage bounds a page, which is kept in memory.
const maxPage = 256 << 10

// maintenance reads the page that the app shows while it is in maintenance. It is
// read now, so that it is there when the disk is what is being maintained.
func (a *appRead) maintenance() {
	const key = "maintenance_page"
	t := a.t
	text, ok := t.str(key)
	if !ok {
		return
	}
	p := Page{Path: t.r.path(text), Type: pageType(text)}
	if p.Type == "" {
		t.errorf(key, "%q is no page that is known; name a file that ends in .html, .htm, .txt or .json", text)
		return
	}
	info, err := t.r.env.Stat(p.Path)
	switch {
	case err != nil:
		t.errorf(key, "%s: %v; paths are relative to the configuration file", p.Path, plain(err))
		return
	case !info.Mode().IsRegular():
		t.errorf(key, "%s is no regular file; name one", p.Path)
		return
	case info.Size() > maxPage:
		t.errorf(key, "%s has %d bytes; a page may have %s: link to what is large", p.Path, info.Size(), formatSize(maxPage))
		return
	}
	if p.Body, err = t.r.env.ReadFile(p.Path); err != nil {
		t.errorf(key, "%s cannot be read (%v); let usher read it", p.Path, plain(err))
		return
	}
	switch n := len(p.Body); {
	case n == 0:
		t.errorf(key, "%s is empty; write what clients should read", p.Path)
	case n > maxPage:
		t.errorf(key, "%s has grown to %d bytes; a page may have %s", p.Path, n, formatSize(maxPage))
	default:
		a.MaintenancePage = p
	}
}

func pageType(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".html", ".htm":
		return "text/html; charset=utf-8"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".json":
		return "application/json"
	}
	return ""
}
