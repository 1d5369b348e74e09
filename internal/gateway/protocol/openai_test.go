package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAsksStreamsForUsage(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m","stream":true}`:                                                  `{"stream_options":{"include_usage":true},"model":"m","stream":true}`,
		`{"model":"m","stream_options":{}}`:                                            `{"model":"m","stream_options":{"include_usage":true}}`,
		`{"model":"m","stream_options": null, "x":1}`:                                  `{"model":"m","stream_options": {"include_usage":true}, "x":1}`,
		`{"model":"m","stream_options":{"a":1}}`:                                       `{"model":"m","stream_options":{"include_usage":true,"a":1}}`,
		`{ "model":"m","stream_options":{"a":1, "include_usage": false}}`:              `{ "model":"m","stream_options":{"a":1, "include_usage": true}}`,
		`{"model":"m","stream_options":{"include_usage":true}}`:                        `{"model":"m","stream_options":{"include_usage":true}}`,
		`{"messages":[{"content":"\"stream_options\":{}"}],"model":"m","stream":true}`: `{"stream_options":{"include_usage":true},"messages":[{"content":"\"stream_options\":{}"}],"model":"m","stream":true}`,
	} {
		c, err := ParseCompletion([]byte(body))
		if err != nil {
			t.Fatal(body, err)
		}
		if got := string(c.WithUsage()); got != want {
			t.Errorf("%s\n got %s\nwant %s", body, got, want)
		}
	}
	for _, body := range []string{`{}`, `{"model":1}`, `[]`, `{"model":"m"`} {
		if _, err := ParseCompletion([]byte(body)); err == nil {
			t.Errorf("%s: accepted", body)
		}
	}
}

// TestStreamWithoutItsUsage compares what the caller gets of a stream with usage with the same
// stream without it, in pieces of every size.
func TestStreamWithoutItsUsage(t *testing.T) {
	plain := "data: {\"id\": \"1\", \"choices\": [{\"delta\": {\"content\": \"a \\\"usage\\\" b\"}}]}\n\n" +
		": comment\n\n" +
		"data: {\"choices\": [{\"delta\": {}}], \"x\": 1}\r\n\r\n" +
		"data: [DONE]\n\n"
	with := "data: {\"id\": \"1\", \"choices\": [{\"delta\": {\"content\": \"a \\\"usage\\\" b\"}}], \"usage\": null}\n\n" +
		": comment\n\n" +
		"data: {\"usage\": null, \"choices\": [{\"delta\": {}}], \"x\": 1}\r\n\r\n" +
		"data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 3}}\n\n" +
		"data: [DONE]\n\n"
	for size := 1; size <= len(with); size++ {
		var got strings.Builder
		e := Events{Remove: true}
		for i := 0; i < len(with); i += size {
			got.Write(e.Next([]byte(with[i:min(len(with), i+size)])))
		}
		got.Write(e.Rest())
		if got.String() != plain {
			t.Fatalf("pieces of %d:\n got %q\nwant %q", size, got.String(), plain)
		}
		if !e.Told || e.Usage != (Usage{7, 3}) {
			t.Fatalf("usage %+v", e)
		}
	}
	e := Events{}
	if got := string(e.Next([]byte(with))) + string(e.Rest()); got != with || !e.Told {
		t.Errorf("a caller that asked for usage got %q", got)
	}
}

// FuzzEvents checks that a stream passes unchanged where nothing is removed, whatever its pieces.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"usage\":null}\n\ndata: x\r\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		size = 1 + max(0, size)%64
		keep, remove := Events{}, Events{Remove: true}
		var got, less strings.Builder
		for i := 0; i < len(stream); i += size {
			piece := stream[i:min(len(stream), i+size)]
			got.Write(keep.Next(piece))
			less.Write(remove.Next(piece))
		}
		got.Write(keep.Rest())
		less.Write(remove.Rest())
		if got.String() != string(stream) {
			t.Fatalf("%q became %q", stream, got.String())
		}
		if less.Len() > len(stream) {
			t.Fatalf("%q grew to %q", stream, less.String())
		}
	})
}

// FuzzCompletion checks that a body that is asked for usage stays JSON and asks for it.
func FuzzCompletion(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true,"stream_options":{"a":[1]}}`))
	f.Add([]byte(`{"stream_options":3,"model":"m"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ParseCompletion(body)
		if err != nil {
			return
		}
		again, err := ParseCompletion(c.WithUsage())
		if err != nil || !json.Valid(c.WithUsage()) || !again.WantsUsage || again.Model != c.Model {
			t.Fatalf("%q became %q: %v", body, c.WithUsage(), err)
		}
	})
}
