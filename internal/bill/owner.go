package bill

import (
	"encoding/json"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// tags returns whose a line is by its tags.
func (a *Aggregate) tags(text string) owned {
	if text == "" {
		return owned{}
	}
	slot := a.tagged.slot(text)
	if slot.is(text) {
		return slot.value
	}
	o, ok := a.owners[text]
	if ok {
		slot.text, slot.value = text, o
		return o
	}
	r := inventory.Resource{}
	var err error
	if r.Tags, err = parseTags(text); err != nil {
		a.badTags++
	}
	// A keep-until that cannot be read changes nothing in a bill.
	_ = a.options.Mapping.Apply(&r)
	if r.Owner != (inventory.Owner{}) {
		o.owner = a.symbol(joinOwner(r.Owner))
	}
	o.purpose = a.symbol(string(r.Purpose))
	if len(a.owners) >= cached {
		clear(a.owners)
	}
	if err == nil {
		a.owners[text] = o
	}
	return o
}

// parseTags reads a JSON object, or what exporters write in its place: a list of objects with
// a key and a value (Google Cloud's labels), the inside of an object (Azure's tags). Values that
// are no strings are kept as they are written, a null as an empty text. The prefixes under which
// AWS lists tags of users ("user:team", in CUR 2.0 "user_team") are taken off.
func parseTags(text string) (map[string]string, error) {
	raw, err := rawTags(text)
	if err != nil {
		return nil, err
	}
	tags := make(map[string]string, len(raw))
	for k, v := range raw {
		var s string
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		tags[k] = s
	}
	for k := range raw {
		short, ok := strings.CutPrefix(k, "user:")
		if !ok {
			short, ok = strings.CutPrefix(k, "user_")
		}
		if _, taken := raw[short]; ok && !taken && short != "" {
			tags[short] = tags[k]
		}
	}
	return tags, nil
}

// rawTags returns the tags by their keys.
func rawTags(text string) (map[string]json.RawMessage, error) {
	var raw map[string]json.RawMessage
	switch text = strings.TrimSpace(text); {
	case strings.HasPrefix(text, "["):
		var list []struct {
			Key   string          `json:"key"`
			Value json.RawMessage `json:"value"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, err
		}
		raw = make(map[string]json.RawMessage, len(list))
		for _, t := range list {
			raw[t.Key] = t.Value
		}
		return raw, nil
	case strings.HasPrefix(text, `"`):
		text = "{" + text + "}"
	}
	err := json.Unmarshal([]byte(text), &raw)
	return raw, err
}

// fieldEnd parts the fields of an owner within one text.
const fieldEnd = "\x1f"

func joinOwner(o inventory.Owner) string {
	fields := []string{o.Team, o.Project, o.User, o.Environment, o.CostCenter}
	for i, f := range fields {
		fields[i] = strings.ReplaceAll(f, fieldEnd, "")
	}
	return strings.Join(fields, fieldEnd)
}

func splitOwner(s string) inventory.Owner {
	if s == "" {
		return inventory.Owner{}
	}
	f := strings.Split(s, fieldEnd)
	return inventory.Owner{Team: f[0], Project: f[1], User: f[2], Environment: f[3], CostCenter: f[4]}
}
