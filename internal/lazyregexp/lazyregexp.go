// Package lazyregexp has regular expressions that are compiled at their first use, so that a
// command that matches none does not wait for them at its start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a [regexp.Regexp] that is compiled at its first use. It is safe for concurrent use.
type Regexp struct {
	text     string
	once     sync.Once
	compiled *regexp.Regexp
}

// New returns the expression of a text in the syntax of [regexp]. The first use of a text that
// is no expression panics: a test compiles every literal that the module passes here.
func New(text string) *Regexp { return &Regexp{text: text} }

func (r *Regexp) regexp() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.text) })
	return r.compiled
}

// The methods are those of [regexp.Regexp].

func (r *Regexp) String() string { return r.text }

// Match is that of [regexp.Regexp].
func (r *Regexp) Match(b []byte) bool { return r.regexp().Match(b) }

// MatchString is that of [regexp.Regexp].
func (r *Regexp) MatchString(s string) bool { return r.regexp().MatchString(s) }

// FindString is that of [regexp.Regexp].
func (r *Regexp) FindString(s string) string { return r.regexp().FindString(s) }

// FindStringIndex is that of [regexp.Regexp].
func (r *Regexp) FindStringIndex(s string) []int { return r.regexp().FindStringIndex(s) }

// FindStringSubmatch is that of [regexp.Regexp].
func (r *Regexp) FindStringSubmatch(s string) []string { return r.regexp().FindStringSubmatch(s) }

// FindAllStringSubmatch is that of [regexp.Regexp].
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.regexp().FindAllStringSubmatch(s, n)
}

// Find is that of [regexp.Regexp].
func (r *Regexp) Find(b []byte) []byte { return r.regexp().Find(b) }

// FindSubmatch is that of [regexp.Regexp].
func (r *Regexp) FindSubmatch(b []byte) [][]byte { return r.regexp().FindSubmatch(b) }

// ReplaceAllString is that of [regexp.Regexp].
func (r *Regexp) ReplaceAllString(s, with string) string { return r.regexp().ReplaceAllString(s, with) }

// ReplaceAllStringFunc is that of [regexp.Regexp].
func (r *Regexp) ReplaceAllStringFunc(s string, with func(string) string) string {
	return r.regexp().ReplaceAllStringFunc(s, with)
}
