package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFile bounds a configuration file, in bytes; 64 MiB is some hundred thousand
// apps.
const maxFile = 64 << 20

// Load reads and checks the file at path. Its error is a Problems value.
func Load(path string, env Env) (*File, error) {
	data, err := env.ReadFile(absolute(env.WorkDir, path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, whole(path, "there is no such file; write one or name another with --config")
	case errors.Is(err, fs.ErrPermission):
		return nil, whole(path, "usher may not read the file; change its mode or owner")
	case err != nil:
		return nil, whole(path, "cannot be read: %v", err)
	}
	return Parse(path, data, env)
}

// Parse checks the text of a configuration file. name is where it is or would
// be: messages show it as given, and relative paths in the file are relative to
// its directory. The error is a Problems value.
func Parse(name string, data []byte, env Env) (*File, error) {
	if len(data) > maxFile {
		return nil, whole(name, "the file is larger than %d bytes; is it the right one?", maxFile)
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		return nil, whole(name, "is UTF-16; save it as UTF-8")
	}
	doc := make(map[string]any)
	if _, err := toml.Decode(text, &doc); err != nil {
		return nil, syntaxProblem(name, text, err)
	}
	path := absolute(env.WorkDir, name)
	r := &reader{name: name, dir: filepath.Dir(path), text: text, env: env.remembering()}
	f := r.file(&table{r: r, vals: doc, node: scan(text)})
	f.Path = path
	sortProblems(r.problems)
	sortProblems(r.warnings)
	if len(r.problems) > 0 {
		return nil, Problems(r.problems)
	}
	f.Warnings = r.warnings
	return f, nil
}

// reader is one pass over one file: what it reads from and what it found wrong.
type reader struct {
	name, dir, text    string
	env                Env
	problems, warnings []Problem
}

// file reads the whole document. Every part is read even if an earlier one was
// wrong, so that all problems come at once.
func (r *reader) file(root *table) *File {
	f := &File{}
	server, ok := root.table("server")
	if !ok && !root.has("server") {
		r.errorf(0, "the [server] table is missing; add [server] with listen = [\"127.0.0.1:8080\"]")
	}
	s := readServer(server)
	f.Server = s.Server
	var apps []*appRead
	if all, ok := root.table("apps"); ok {
		for _, name := range all.names() {
			if t, ok := all.table(name); ok {
				apps = append(apps, readApp(t, strings.Clone(name), &s))
			}
		}
	}
	root.done()
	checkAcross(r, &s, apps)
	f.Apps = make([]App, 0, len(apps))
	for _, a := range apps {
		f.Apps = append(f.Apps, a.App)
	}
	slices.SortFunc(f.Apps, func(a, b App) int { return strings.Compare(a.Name, b.Name) })
	return f
}

func (r *reader) problem(off int, format string, args ...any) Problem {
	line, col := lineColumn(r.text, off)
	return Problem{File: r.name, Line: line, Column: col, Message: fmt.Sprintf(format, args...)}
}

// errorf records what is wrong at a byte offset.
func (r *reader) errorf(off int, format string, args ...any) {
	r.problems = append(r.problems, r.problem(off, format, args...))
}

// warnf records what is doubtful at a byte offset.
func (r *reader) warnf(off int, format string, args ...any) {
	r.warnings = append(r.warnings, r.problem(off, format, args...))
}

// where names a place of the file for use inside a message.
func (r *reader) where(off int) string {
	line, _ := lineColumn(r.text, off)
	return fmt.Sprintf("line %d", line)
}

// path makes a path of the file absolute: relative ones start at its directory.
func (r *reader) path(p string) string { return absolute(r.dir, p) }

func absolute(dir, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(dir, p)
}

func whole(name, format string, args ...any) Problems {
	return Problems{{File: name, Message: fmt.Sprintf(format, args...)}}
}

// syntaxProblem turns the decoder's error into ours. Only the offset of its
// position is used: its column counts bytes.
func syntaxProblem(name, text string, err error) Problems {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return whole(name, "is no TOML: %v", err)
	}
	line, col := lineColumn(text, pe.Position.Start)
	return Problems{{File: name, Line: line, Column: col, Message: "is no TOML: " + pe.Message}}
}
