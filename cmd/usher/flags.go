package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// bounded is the value of a flag that does not take all that its type could hold.
type bounded struct {
	pflag.Value
	is string // what it takes, in words that follow "--flag is"
	ok func() bool
}

func (b bounded) Set(text string) error {
	if err := b.Value.Set(text); err != nil || !b.ok() {
		return errors.New(b.is)
	}
	return nil
}

// bound lets a flag of f take only what ok, asked after the flag was set, agrees to.
func bound(f *pflag.FlagSet, name, is string, ok func() bool) {
	fl := f.Lookup(name)
	fl.Value = bounded{fl.Value, is, ok}
}

func oneOf(f *pflag.FlagSet, name string, value *string, words ...string) {
	bound(f, name, strings.Join(words, " or "), func() bool { return slices.Contains(words, *value) })
}

func moreThanNothing(f *pflag.FlagSet, name string, value *time.Duration) {
	bound(f, name, "a duration of more than 0, such as 30s", func() bool { return *value > 0 })
}

func between[T cmp.Ordered](f *pflag.FlagSet, name string, value *T, least, most T) {
	bound(f, name, fmt.Sprintf("a number from %v to %v", least, most), func() bool { return least <= *value && *value <= most })
}

func atLeast[T cmp.Ordered](f *pflag.FlagSet, name string, value *T, least T) {
	bound(f, name, fmt.Sprintf("a number from %v", least), func() bool { return *value >= least })
}

// flagError says what a flag takes, and not which function could not read it.
func flagError(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return &usageError{err}
	}
	takes := wrong.Unwrap().Error()
	if wrong.GetFlag().Value.Type() == "bool" {
		takes = "true or false"
	}
	return usagef("--%s is %s, not %q", wrong.GetFlag().Name, takes, wrong.GetValue())
}
