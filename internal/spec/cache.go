package spec

import "sync"

// Cache keeps parsed specifications by the ids of the jobs and sessions that have them. The zero value is
// empty, a nil one keeps nothing, and any number of goroutines may use it.
type Cache struct{ parsed sync.Map }

// Parse returns the specification of an id, whose text never changes. Callers must not change it.
func (c *Cache) Parse(id, name string, text []byte) (*Spec, error) {
	if c == nil {
		return Parse(name, text)
	}
	if known, ok := c.parsed.Load(id); ok {
		return known.(*Spec), nil
	}
	s, err := Parse(name, text)
	if err == nil {
		c.parsed.Store(id, s)
	}
	return s, err
}

// Forget drops the specification of an id.
func (c *Cache) Forget(id string) {
	if c != nil {
		c.parsed.Delete(id)
	}
}
