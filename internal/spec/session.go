package spec

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
)

// sessionEntries returns the keys that only a session has.
func (d *reader) sessionEntries(s *Spec) []document.Key {
	return append(d.environmentEntries(s), []document.Key{
		document.Optional("ports", "ports of the machine that connect may forward", func(n ast.Node) error {
			return d.ports(n, &s.Ports)
		}),
		document.Optional("work",
			"folder whose content is saved, and is there again when the session is started again",
			func(n ast.Node) error {
				w := &Work{}
				s.Work = w
				_, err := d.Mapping(n, "work",
					document.Required("dir", "folder on the machine: ~/work, or an absolute path",
						func(n ast.Node) error {
							document.Note(n, document.Shape{Pattern: "^(~/|/)."})
							v, err := d.Text(n, "work.dir")
							if err == nil &&
								(len(strings.TrimPrefix(v, "~")) < 2 ||
									!strings.HasPrefix(strings.TrimPrefix(v, "~"), "/")) {
								err = d.At(n, "work.dir %q is not a folder such as ~/work or /work", v)
							}
							w.Dir = v
							return err
						}),
					document.Optional("to", "object store that keeps it", func(n ast.Node) error {
						return d.store(n, "work.to", &w.To)
					}),
					document.Optional("every", "time between snapshots", func(n ast.Node) (err error) {
						w.Every, err = d.duration(n, "work.every")
						return err
					}))
				return err
			}),
	}...)
}

// environmentEntries returns the keys that set up the environment of the work.
func (d *reader) environmentEntries(s *Spec) []document.Key {
	return []document.Key{
		document.Optional("env", "variables that are added to the environment", func(n ast.Node) error {
			return d.variables(n, "env", s, &s.Env)
		}),
		document.Optional("secrets", "variables whose values are read on the machine: name and parameter or secret",
			func(n ast.Node) error { return d.variables(n, "secrets", s, &s.Secrets) }),
		document.Optional("image", "image that machines start from, in the words of the provider",
			func(n ast.Node) error {
				return d.matching(n, "image", &s.Image, imageName,
					"it is an image such as ami-0abc or the name of a parameter")
			}),
	}
}

// ports reads a list of ports.
func (d *reader) ports(n ast.Node, out *[]int) error {
	if list, ok := n.(*ast.SequenceNode); document.Scalar(n) != "" || ok && len(list.Values) == 0 {
		return d.At(n, "ports is a list such as [8888]; this is %s", document.NodeName(n))
	}
	return d.Items(n, "ports", func(item ast.Node) error {
		p, err := d.Count(item, "a port", 1, maxPort)
		if err == nil && slices.Contains(*out, p) {
			err = d.At(item, "ports: %d is given twice", p)
		}
		*out = append(*out, p)
		return err
	})
}

// variables reads a mapping of names to texts. A variable cannot have both a value and a secret.
func (d *reader) variables(n ast.Node, what string, s *Spec, out *map[string]string) error {
	values := map[string]string{}
	err := d.Pairs(n, what, func(name string, k, v ast.Node) error {
		if name != "" && !variable.MatchString(name) { // the name is empty while the shape is described
			return d.At(k, "%s %q: a variable is letters, digits and underscores", what, name)
		}
		if strings.HasPrefix(strings.ToUpper(name), "CURFEW_") {
			return d.At(k, "%s: names that begin with CURFEW_ are curfew's own", what)
		}
		_, twice := s.Env[name]
		if _, secret := s.Secrets[name]; name != "" && (twice || secret) {
			return d.At(k, "%s: %s is in env and in secrets", what, name)
		}
		value, err := d.Text(v, name)
		if err == nil && len(value) > maxValue {
			err = d.At(v, "%s: %s is over %d bytes", what, name, maxValue)
		}
		values[name] = value
		return err
	})
	if len(values) > 0 && err == nil {
		*out = values
	}
	return err
}

// DefaultLease is the lease of a session that is started without a file or a lease.
const DefaultLease = 4 * time.Hour

// Clone returns a deep copy.
func (s *Spec) Clone() *Spec {
	c := *s
	c.Regions, c.Ports, c.Data, c.Unknown = slices.Clone(s.Regions), slices.Clone(s.Ports), slices.Clone(
		s.Data), slices.Clone(s.Unknown)
	c.Env, c.Secrets, c.Selector = maps.Clone(s.Env), maps.Clone(s.Secrets), maps.Clone(s.Selector)
	if s.Work != nil {
		w := *s.Work
		c.Work = &w
	}
	return &c
}
