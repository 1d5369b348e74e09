package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Patch corrects moto's answers about one thing: in every element or object of an answer whose
// member IDField is ID, the members in Set that are there get the given values, and those in Add
// are put in even where they are missing.
//
// A time is written as the protocol writes times: RFC 3339 in XML and where the
// member was a string, else seconds since 1970. An int64 is written as it is.
type Patch struct {
	Service string
	// Operation limits the patch to one operation; empty is the whole service.
	Operation   string
	IDField, ID string
	// A patch applies only to elements that also have this member, if set, because an identifier
	// also occurs elsewhere in a response.
	Beside   string
	Set, Add map[string]any
	// Remove lists members that moto shows but that must be absent.
	Remove []string
}

// patches are stored by service, then by member and value.
type patches struct {
	mu    sync.RWMutex
	byKey map[string]map[string]map[string][]*Patch
}

// Patch adds a correction.
func (s *Server) Patch(p Patch) {
	s.patches.mu.Lock()
	defer s.patches.mu.Unlock()
	if s.patches.byKey == nil {
		s.patches.byKey = map[string]map[string]map[string][]*Patch{}
	}
	fields := s.patches.byKey[p.Service]
	if fields == nil {
		fields = map[string]map[string][]*Patch{}
		s.patches.byKey[p.Service] = fields
	}
	if fields[p.IDField] == nil {
		fields[p.IDField] = map[string][]*Patch{}
	}
	fields[p.IDField][p.ID] = append(fields[p.IDField][p.ID], &p)
}

// apply corrects a response; an unreadable one is unchanged.
func (p *patches) apply(c *Call, body []byte) []byte {
	p.mu.RLock()
	defer p.mu.RUnlock()
	fields := p.byKey[c.Service]
	if len(fields) == 0 || len(body) == 0 {
		return body
	}
	switch c.Protocol {
	case EC2, Query, RestXML:
		if c.Protocol == RestXML && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
			return body
		}
		doc, err := parseXML(body)
		if err != nil {
			return body
		}
		if !patchXML(doc, c.Operation, fields) {
			return body
		}
		return doc.Bytes()
	case JSON, RestJSON:
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil || !patchJSON(v, c.Operation, fields) {
			return body
		}
		return encodeJSON(v)
	}
	return body
}

func (p *Patch) applies(operation string) bool { return p.Operation == "" || p.Operation == operation }

func patchXML(n *Node, operation string, fields map[string]map[string][]*Patch) (changed bool) {
	var due []*Patch
	for _, k := range n.Kids {
		if len(k.Kids) > 0 {
			changed = patchXML(k, operation, fields) || changed
		} else if ids := fields[k.Name]; ids != nil {
			due = append(due, ids[k.Text]...)
		}
	}
	for _, p := range due {
		if !p.applies(operation) || (p.Beside != "" && n.Kid(p.Beside) == nil) {
			continue
		}
		changed = true
		for name, v := range p.Set {
			if k := n.Kid(name); k != nil {
				k.Kids, k.Text = nil, xmlText(v)
			}
		}
		for name, v := range p.Add {
			k := n.Kid(name)
			if k == nil {
				k = E(name)
				n.Kids = append(n.Kids, k)
			}
			k.Kids, k.Text = nil, xmlText(v)
		}
		n.Kids = slices.DeleteFunc(n.Kids, func(k *Node) bool { return slices.Contains(p.Remove, k.Name) })
	}
	return changed
}

func xmlText(v any) string {
	if t, ok := v.(time.Time); ok {
		return t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return fmt.Sprint(v)
}

func patchJSON(v any, operation string, fields map[string]map[string][]*Patch) (changed bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			changed = patchJSON(x, operation, fields) || changed
		}
	case map[string]any:
		for _, x := range v {
			changed = patchJSON(x, operation, fields) || changed
		}
		for field, ids := range fields {
			id, ok := v[field].(string)
			if !ok {
				continue
			}
			for _, p := range ids[id] {
				if _, beside := v[p.Beside]; !p.applies(operation) || (p.Beside != "" && !beside) {
					continue
				}
				changed = true
				for name, x := range p.Set {
					if old, there := v[name]; there {
						v[name] = jsonLike(old, x)
					}
				}
				for name, x := range p.Add {
					v[name] = jsonLike(v[name], x)
				}
				for _, name := range p.Remove {
					delete(v, name)
				}
			}
		}
	}
	return changed
}

// jsonLike formats a time as a string if the old value is one.
func jsonLike(old, v any) any {
	if t, ok := v.(time.Time); ok {
		if _, text := old.(string); text {
			return t.UTC().Format(time.RFC3339)
		}
		return seconds(t)
	}
	return v
}

// hideDisabled removes disabled images from a response unless the caller requests them, as EC2
// does; that an image is disabled is a correction too.
func hideDisabled(c *Call, body []byte) []byte {
	if c.Name() != "ec2:DescribeImages" || c.Form.Get("IncludeDisabled") == "true" ||
		!bytes.Contains(body, []byte("disabled")) {
		return body
	}
	doc, err := parseXML(body)
	if err != nil {
		return body
	}
	if set := doc.Kid("imagesSet"); set != nil {
		set.Kids = slices.DeleteFunc(set.Kids, func(n *Node) bool {
			state := n.Kid("imageState")
			return state != nil && state.Text == "disabled"
		})
	}
	return doc.Bytes()
}
