package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Completion is a request to an OpenAI-compatible path.
type Completion struct {
	Model  string
	Stream bool
	// WantsUsage is true where the caller asked a stream for its tokens.
	WantsUsage bool

	body    []byte
	options []byte // the raw stream_options; nil where there are none
	asked   []byte // the raw include_usage; nil where there is none
}

// ParseCompletion reads a request of the OpenAI API. Its error is an *Error.
func ParseCompletion(body []byte) (*Completion, error) {
	all, _, err := parse(body)
	if err != nil {
		return nil, err
	}
	c := &Completion{body: body}
	if raw := all["model"]; raw == nil || raw[0] != '"' {
		return nil, malformed("the request names no model")
	} else if c.Model, err = unquote(raw); err != nil {
		return nil, err
	}
	c.Stream = string(all["stream"]) == "true"
	raw := all["stream_options"]
	if raw == nil || raw[0] != '{' {
		return c, nil
	}
	options, _, err := members(raw)
	if err != nil {
		return nil, checkText(err)
	}
	c.options, c.asked = raw, options["include_usage"]
	c.WantsUsage = string(c.asked) == "true"
	return c, nil
}

// WithUsage returns the body of a stream that tells its tokens. All other text is as it came.
func (c *Completion) WithUsage() []byte {
	if c.WantsUsage {
		return c.body
	}
	const option = `"include_usage":true`
	all, _, _ := members(c.body) // ParseCompletion has read it
	switch null := all["stream_options"]; {
	case c.asked != nil:
		return c.splice(c.asked, "true")
	case c.options != nil && firstElement(c.options)[0] == '}':
		return c.splice(c.options, "{"+option+"}")
	case c.options != nil:
		return c.splice(c.options[:1], "{"+option+",")
	case null != nil:
		return c.splice(null, "{"+option+"}")
	}
	at := bytes.IndexByte(c.body, '{')
	return c.splice(c.body[at:at+1], `{"stream_options":{`+option+`},`)
}

// splice replaces a part of the body.
func (c *Completion) splice(part []byte, text string) []byte {
	at := cap(c.body) - cap(part)
	out := append(make([]byte, 0, len(c.body)+len(text)), c.body[:at]...)
	return append(append(out, text...), c.body[at+len(part):]...)
}

// Usage is what a completion used.
type Usage struct {
	Input  int64 `json:"prompt_tokens"`
	Output int64 `json:"completion_tokens"`
}

// ReadUsage returns the usage of an answer; false where it has none.
func ReadUsage(answer []byte) (Usage, bool) {
	var doc struct {
		Usage *Usage `json:"usage"`
	}
	if json.Unmarshal(answer, &doc) != nil || doc.Usage == nil || doc.Usage.Input < 0 || doc.Usage.Output < 0 {
		return Usage{}, false
	}
	return *doc.Usage, true
}

// maxEvent bounds an event of a stream that is read as a whole; a longer one passes unread.
const maxEvent = 1 << 20

// Events reads the server-sent events of a completion. It takes out what a stream has only because
// the gateway asked for its usage: the last event without choices, and the empty usage of others.
type Events struct {
	// Remove takes these parts out; without it the stream passes as it is.
	Remove bool
	// Usage is what the stream told, once Told is true.
	Usage Usage
	Told  bool
	// Failed is true once an event was an error: its stream is no answer.
	Failed bool

	pending []byte
	long    bool
}

// Next takes a piece of a stream and returns what the caller gets of it.
func (e *Events) Next(piece []byte) []byte {
	e.pending = append(e.pending, piece...)
	var out []byte
	for {
		n := eventEnd(e.pending)
		switch {
		case n == 0 && len(e.pending) <= maxEvent:
			return out
		case n == 0:
			out, e.pending, e.long = append(out, e.pending...), e.pending[:0], true
			return out
		case e.long:
			out, e.long = append(out, e.pending[:n]...), false
		default:
			out = append(out, e.event(e.pending[:n])...)
		}
		e.pending = e.pending[:copy(e.pending, e.pending[n:])]
	}
}

// Rest returns what is left at the end of a stream.
func (e *Events) Rest() []byte { return e.pending }

// eventEnd returns the length of the first event with its blank line, 0 without a whole one
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func eventEnd(b []byte) int {
	end := 0
	for _, blank := range []string{"\n\n", "\r\n\r\n"} {
		if i := bytes.Index(b, []byte(blank)); i >= 0 && (end == 0 || i+len(blank) < end) {
			end = i + len(blank)
		}
	}
	return end
}

// FirstEvent reads a stream up to the end of its first event, or of what it has.
func FirstEvent(r io.Reader) ([]byte, error) {
	var out []byte
	piece := make([]byte, 4<<10)
	for eventEnd(out) == 0 && len(out) <= maxEvent {
		n, err := r.Read(piece)
		out = append(out, piece[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// EventData returns the data of the first of some events, which has one line of it; nil otherwise.
func EventData(events []byte) []byte {
	if n := eventEnd(events); n > 0 {
		events = events[:n]
	}
	if data, ok := bytes.CutPrefix(events, []byte("data:")); ok {
		return bytes.TrimSpace(data)
	}
	return nil
}

// event returns one event as the caller gets it.
func (e *Events) event(event []byte) []byte {
	if !bytes.Contains(event, []byte(`"usage"`)) && !bytes.Contains(event, []byte(`"error"`)) {
		return event
	}
	data := EventData(event)
	if data == nil {
		return event
	}
	all, _, err := members(data)
	if err == nil && all["choices"] == nil && all["error"] != nil && string(all["error"]) != "null" {
		e.Failed = true
	}
	if err != nil || all["usage"] == nil {
		return event
	}
	if usage, told := ReadUsage(data); told {
		e.Usage, e.Told = usage, true
		if choices, err := elements(all["choices"]); e.Remove && err == nil && len(choices) == 0 {
			return nil
		}
		return event
	}
	if !e.Remove || string(all["usage"]) != "null" {
		return event
	}
	return withoutMember(event, data)
}

// withoutMember returns an event without the usage of its object.
func withoutMember(event, data []byte) []byte {
	from, to, previous := 0, 0, 0
	c := cursor{b: data}
	err := c.object(0, func(key, _ []byte) error {
		at := cap(data) - cap(key)
		switch {
		case from == 0 && to == 0 && string(key) == `"usage"`:
			if from, to = previous, c.i; previous == 0 {
				from, to = at, -1
			}
		case to < 0: // it was the first member: its comma goes with it
			to = at
		}
		previous = c.i
		return nil
	})
	if err != nil || to <= from {
		return event
	}
	start := cap(event) - cap(data)
	return append(append([]byte{}, event[:start+from]...), event[start+to:]...)
}
