package spec

import "sync"

// Cache caches parsed specifications by the IDs of their jobs and sessions. The zero value is
// empty; a nil one caches nothing. It is safe for concurrent use.
type Cache struct{ parsed sync.Map }

// Parse returns the parsed specification of an ID, whose text must never change. Callers must not
// change the result.
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
