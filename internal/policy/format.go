package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// YAML returns a file that [Parse] parses to the same policies. Zero limits are omitted, and a
// share is rounded to a hundredth of a percent.
func (s *Set) YAML() []byte {
	var b strings.Builder
	b.WriteString("apiVersion: " + APIVersion + "\npolicies:\n")
	for _, p := range s.Policies {
		p.write(&b)
	}
	return []byte(b.String())
}

func (p *Policy) write(b *strings.Builder) {
	fmt.Fprintf(b, "  - name: %s\n", scalarText(p.Name))
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, "    %s: %s\n", key, value)
		}
	}
	line("select", flow(p.Select.pairs()))
	if p.Where != "" {
		line("where", scalarText(p.Where))
	}
	if p.When != "" {
		line("when", scalarText(p.When))
	}
	if s := p.Schedule; s != nil {
		place := s.Location
		if place == nil {
			place = time.UTC
		}
		line("schedule", flow([]string{
			pair("timezone", scalarText(place.String())), pair("off", list(s.Off)), pair("at", list(s.At)),
		}))
	}
	b.WriteString("    then:\n")
	if w := p.Warn; w != nil {
		fmt.Fprintf(b, "      - warn: %s\n",
			flow([]string{pair("notify", list(w.Notify)), pair("grace", plain.ExactDuration(w.Grace))}))
	}
	p.Do.write(b)
	line("limits", flow(p.Limits.pairs()))
	if p.Mode != Observe {
		line("mode", string(p.Mode))
	}
}

func (d *Do) write(b *strings.Builder) {
	fmt.Fprintf(b, "      - do: %s\n", d.Verb)
	disks := d.ScratchInstanceStore || d.ScratchRoot
	if disks {
		var store, root string
		if d.ScratchInstanceStore {
			store = scratch
		}
		switch {
		case d.ScratchRoot:
			root = scratch
		case d.SaveDisks:
			root = snapshot
		}
		fmt.Fprintf(b, "        disks: %s\n", flow([]string{pair("instance_store", store), pair("root", root)}))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"even_if_busy", d.EvenIfBusy}, {"even_if_unknown", d.EvenIfUnknown}, {"scratch_disks", d.ScratchDisks},
		{"save_disks", d.SaveDisks && !disks},
	} {
		if f.set {
			fmt.Fprintf(b, "        %s: true\n", f.name)
		}
	}
	if len(d.Tags) > 0 {
		fmt.Fprintf(b, "        tags: %s\n", flow(tagPairs(d.Tags)))
	}
	if d.Verb == PutRetention {
		fmt.Fprintf(b, "        retention_days: %d\n", d.RetentionDays)
	}
	if d.Fleet != "" {
		fmt.Fprintf(b, "        fleet: %s\n        min: %d\n        max: %d\n", scalarText(d.Fleet), d.Min, d.Max)
		if d.Zero {
			b.WriteString("        zero: true\n")
		}
		if d.Target > 0 {
			fmt.Fprintf(b, "        target: %s\n", strconv.FormatFloat(d.Target, 'f', -1, 64))
		}
		return
	}
	if d.Verb == Scale && d.To != ThroughGroup {
		fmt.Fprintf(b, "        to: %d\n", d.To)
	}
}

func (s *Select) pairs() []string {
	var out []string
	for i := range fields {
		out = append(out, pair(fields[i].name, list(*fields[i].selected(s))))
	}
	return append(out, pair("tags", flow(tagPairs(s.Tags))))
}

func tagPairs(tags map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, scalarText(k)+": "+scalarText(tags[k]))
	}
	return out
}

func (l *Limits) pairs() []string {
	var out []string
	if l.PerHour > 0 {
		out = append(out, pair("per_hour", strconv.Itoa(l.PerHour)))
	}
	if points := int(math.Round(l.Share * 10_000)); points > 0 {
		percent := strings.TrimRight(fmt.Sprintf("%d.%02d", points/100, points%100), "0")
		out = append(out, pair("share", strconv.Quote(strings.TrimSuffix(percent, ".")+"%")))
	}
	if l.DollarsPerHour > 0 {
		out = append(out, pair("dollars_per_hour", l.DollarsPerHour.String()))
	}
	return out
}

// pair returns a key with its value, or "" without a value.
func pair(key, value string) string {
	if value == "" {
		return ""
	}
	return key + ": " + value
}

// flow returns the nonempty pairs as a flow mapping; "" without any.
func flow(pairs []string) string {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(s string) bool { return s == "" })
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// list returns one value, or several as a flow sequence; "" without any.
func list(values []string) string {
	var out []string
	for _, v := range values {
		out = append(out, scalarText(v))
	}
	switch len(out) {
	case 0:
		return ""
	case 1:
		return out[0]
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// plainWord matches texts that need no quotes in YAML.
var plainWord = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// reservedWords have another meaning in YAML.
var reservedWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// scalarText writes a text as a YAML scalar.
func scalarText(s string) string {
	if plainWord.MatchString(s) && !slices.Contains(reservedWords, strings.ToLower(s)) {
		return s
	}
	return document.Quoted(s)
}
