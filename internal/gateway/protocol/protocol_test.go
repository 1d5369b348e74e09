package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tensorJSON is a tensor as encoding/json reads it.
type tensorJSON struct {
	Name     string            `json:"name"`
	Datatype string            `json:"datatype"`
	Shape    []int             `json:"shape"`
	Data     []json.RawMessage `json:"data"`
}

type inferJSON struct {
	ID         *string         `json:"id,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Inputs     []tensorJSON    `json:"inputs"`
	Outputs    []tensorJSON    `json:"outputs,omitempty"`
}

// rowModel answers an inference request row by row: every output row is the text of the input
// row, so that an exchanged or changed row shows.
func rowModel(t testing.TB, body []byte) []byte {
	t.Helper()
	var in inferJSON
	if err := json.Unmarshal(body, &in); err != nil {
		t.Fatalf("the merged body is not JSON: %v\n%s", err, body)
	}
	out := inferJSON{Outputs: in.Inputs, ID: in.ID}
	for i := range out.Outputs {
		out.Outputs[i].Name = "out-" + out.Outputs[i].Name
	}
	b, err := json.Marshal(map[string]any{"model_name": "echo", "outputs": out.Outputs, "id": in.ID})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func numberText(t *rapid.T) json.RawMessage {
	return rapid.SampledFrom([]json.RawMessage{
		[]byte("0"), []byte("-1.50"), []byte("3.1415926535897932384626"), []byte("1e-7"), []byte("2E+3"), []byte("7"),
	}).Draw(t, "number")
}

func TestBatchKeepsEveryRow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(1, 5).Draw(rt, "width")
		var requests []*Request
		var direct []string
		for range rapid.IntRange(1, 6).Draw(rt, "requests") {
			rows := rapid.IntRange(1, 4).Draw(rt, "rows")
			in := inferJSON{}
			if rapid.Bool().Draw(rt, "has id") {
				id := rapid.StringMatching(`[a-z"\\]{0,5}`).Draw(rt, "id")
				in.ID = &id
			}
			for _, name := range []string{"x", "y"} {
				one := tensorJSON{Name: name, Datatype: "FP32", Shape: []int{rows, width}}
				for range rows * width {
					one.Data = append(one.Data, numberText(rt))
				}
				in.Inputs = append(in.Inputs, one)
			}
			body, _ := json.Marshal(in)
			r, err := V2{}.Parse(body)
			if err != nil || r.Reason != "" || r.Rows != rows {
				rt.Fatalf("%s: %v %+v", body, err, r)
			}
			if len(requests) > 0 && r.Key != requests[0].Key {
				rt.Fatalf("keys differ: %q %q", r.Key, requests[0].Key)
			}
			requests, direct = append(requests, r), append(direct, string(rowModel(t, body)))
		}
		answers, err := V2{}.Split(requests, rowModel(t, V2{}.Merge(requests)))
		if err != nil {
			rt.Fatal(err)
		}
		for i, got := range answers {
			var a, b inferJSON
			if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(direct[i]), &b)); err != nil {
				rt.Fatal(err)
			}
			left, _ := json.Marshal(a)
			right, _ := json.Marshal(b)
			if !bytes.Equal(left, right) {
				rt.Fatalf("request %d:\n got %s\nwant %s", i, left, right)
			}
		}
	})
}

func TestInstancesKeepTheirOrder(t *testing.T) {
	bodies := []string{
		`{"instances":[[1.5,2],[3,4.25]],"signature_name":"serve"}`,
		`{"signature_name":"serve", "instances": [ [5.0 , 6] ]}`,
	}
	var requests []*Request
	for _, b := range bodies {
		r, err := V1{}.Parse([]byte(b))
		if err != nil || r.Reason != "" {
			t.Fatal(err, r)
		}
		requests = append(requests, r)
	}
	if requests[0].Key != requests[1].Key {
		t.Fatalf("keys differ: %q %q", requests[0].Key, requests[1].Key)
	}
	var merged struct {
		Instances [][]float64 `json:"instances"`
		Signature string      `json:"signature_name"`
	}
	if err := json.Unmarshal(V1{}.Merge(requests), &merged); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(merged); got != "{[[1.5 2] [3 4.25] [5 6]] serve}" {
		t.Fatal(got)
	}
	answers, err := V1{}.Split(requests, []byte(`{"predictions": [[0.10], [0.2] ,[0.30]], "model_name":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"predictions":[[0.10], [0.2]],"model_name":"m"}`, `{"predictions":[[0.30]],"model_name":"m"}`,
	}
	for i, w := range want {
		if string(answers[i]) != w {
			t.Errorf("answer %d: %s, want %s", i, answers[i], w)
		}
	}
}

func infer(inputs string) string { return `{"inputs":[` + inputs + `]}` }

func TestRefusesMalformedRequests(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"shape and data differ": {infer(`{"name":"x","datatype":"FP32","shape":[2,2],"data":[1,2,3]}`), "3 elements"},
		"nested unlike shape": {
			infer(`{"name":"x","datatype":"FP32","shape":[2,2],"data":[[1,2],[3]]}`), "does not have its shape",
		},
		"0 rows":         {infer(`{"name":"x","datatype":"FP32","shape":[0,2],"data":[]}`), "0 rows"},
		"NaN":            {infer(`{"name":"x","datatype":"FP32","shape":[1],"data":[NaN]}`), "not valid JSON"},
		"negative shape": {infer(`{"name":"x","datatype":"FP32","shape":[-1],"data":[1]}`), "expected 0 to"},
		"overflow":       {infer(`{"name":"x","datatype":"FP32","shape":[65536,65536],"data":[1]}`), "more than"},
		"huge dimension": {infer(`{"name":"x","datatype":"FP32","shape":[1e99],"data":[1]}`), "expected 0 to"},
		"two equal inputs": {
			infer(
				`{"name":"x","datatype":"FP32","shape":[1],"data":[1]},{"name":"x","datatype":"FP32","shape":[1],"data":[1]}`),
			"two inputs",
		},
		"duplicate key": {`{"inputs":[],"inputs":[]}`, "appears twice"},
		"escaped twin":  {`{"inputs":[],"\u0069nputs":[]}`, "appears twice"},
		"no inputs":     {`{"inputs":[]}`, "is empty"},
		"an array":      {`[1]`, "expected an object"},
		"deep": {
			infer(`{"name":"x","datatype":"FP32","shape":[1],"data":` + strings.Repeat("[", 100000) + `}`),
			"nested deeper",
		},
		"cut off": {`{"inputs":[{"name":"x"`, "unexpected end"},
		"trailing": {
			infer(`{"name":"x","datatype":"FP32","shape":[1],"data":[1]}`) + "{}", "the end of the document",
		},
		"not UTF-8":  {"{\"inputs\":\"\xff\"}", "UTF-8"},
		"numeric id": {`{"id":7,"inputs":[]}`, "not a string"},
		"no name":    {infer(`{"datatype":"FP32","shape":[1],"data":[1]}`), "no name"},
		"no shape":   {infer(`{"name":"x","datatype":"FP32","data":[1]}`), "no shape"},
		"no data":    {infer(`{"name":"x","datatype":"FP32","shape":[1]}`), "no data"},
	}
	for name, c := range cases {
		_, err := V2{}.Parse([]byte(c.body))
		var bad *Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for name, body := range map[string]string{
		"no instances": `{}`, "not a list": `{"instances":1}`, "empty": `{"instances":[]}`,
	} {
		if _, err := (V1{}).Parse([]byte(body)); err == nil {
			t.Errorf("V1 %s: accepted", name)
		}
	}
}

// TestSendsAloneWhatCouldHarmNeighbors: requests whose elements a server may refuse, and those
// whose answers depend on more than their rows.
func TestSendsAloneWhatCouldHarmNeighbors(t *testing.T) {
	one := func(datatype, data string) string {
		return infer(`{"name":"x","datatype":"` + datatype + `","shape":[1],"data":[` + data + `]}`)
	}
	for name, body := range map[string]string{
		"too large for its type":  one("UINT8", "256"),
		"negative unsigned":       one("UINT8", "-1"),
		"negative small unsigned": one("UINT32", "-7"),
		"beyond int64":            one("INT64", "9223372036854775808"),
		"fraction":                one("INT32", "1.5"),
		"huge float":              one("FP32", "1e400"),
		"long digits":             one("FP64", strings.Repeat("9", 65)),
		"string for number":       one("FP32", `"NaN"`),
		"number for string":       one("BYTES", "1"),
		"lone surrogate":          one("BYTES", `"\ud800"`),
		"null":                    one("FP32", "null"),
		"unknown type":            one("FP8", "1"),
		"scalar":                  infer(`{"name":"x","datatype":"FP32","shape":[],"data":[1]}`),
		"sequence":                `{"parameters":{"sequence_id":4},"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"shared memory": infer(
			`{"name":"x","datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r"}}`),
		"binary answer": `{"outputs":[{"name":"y","parameters":{"binary_data":true}}],"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`,
		"different rows": infer(`{"name":"x","datatype":"FP32","shape":[1],"data":[1]},` +
			`{"name":"y","datatype":"FP32","shape":[2],"data":[1,2]}`),
	} {
		r, err := V2{}.Parse([]byte(body))
		if err != nil || r.Reason == "" {
			t.Errorf("%s: %v %+v", name, err, r)
		}
	}
	for name, body := range map[string]string{
		"shapes differ": `{"instances":[[1],[1,2]]}`, "types differ": `{"instances":[1,"a"]}`,
		"columns": `{"inputs":{"x":[1]}}`, "large integer": `{"instances":[99999999999999999999]}`,
		"keys differ": `{"instances":[{"a":1},{"b":1}]}`,
	} {
		r, err := V1{}.Parse([]byte(body))
		if err != nil || r.Reason == "" {
			t.Errorf("V1 %s: %v %+v", name, err, r)
		}
	}
}

func TestKeysSeparateWhatDiffers(t *testing.T) {
	bodies := []string{
		infer(`{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}`),
		infer(`{"name":"x","datatype":"FP64","shape":[1,2],"data":[1,2]}`),
		infer(`{"name":"x","datatype":"FP32","shape":[1,1,2],"data":[1,2]}`),
		infer(`{"name":"z","datatype":"FP32","shape":[1,2],"data":[1,2]}`),
		infer(`{"name":"x","datatype":"FP32","shape":[1,2],"data":[[1,2]]}`),
		infer(`{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"a":1},"data":[1,2]}`),
		`{"parameters":{"k":1},"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`,
		`{"outputs":[{"name":"y"}],"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}`,
	}
	seen := map[string]int{}
	for i, body := range bodies {
		r, err := V2{}.Parse([]byte(body))
		if err != nil || r.Reason != "" {
			t.Fatal(body, err, r)
		}
		if j, twice := seen[r.Key]; twice {
			t.Errorf("%s shares a batch with %s", body, bodies[j])
		}
		seen[r.Key] = i
	}
	for _, pair := range [][2]string{
		{`{"instances":[1]}`, `{"instances":[1.0]}`}, {`{"instances":[1]}`, `{"instances":["1"]}`},
		{`{"instances":[{"a":1,"b":2}]}`, `{"instances":[{"a":1.5,"b":2}]}`},
		{`{"instances":[1],"p":1}`, `{"instances":[1],"p":2}`},
	} {
		a, _ := V1{}.Parse([]byte(pair[0]))
		b, _ := V1{}.Parse([]byte(pair[1]))
		if a.Key == b.Key {
			t.Errorf("%s and %s share a batch", pair[0], pair[1])
		}
	}
}

func TestRefusesAnswersWithOtherRows(t *testing.T) {
	r, err := V2{}.Parse([]byte(`{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]string{
		"a row missing": `{"outputs":[{"name":"y","datatype":"FP32","shape":[3],"data":[1,2,3]}]}`,
		"data short":    `{"outputs":[{"name":"y","datatype":"FP32","shape":[4],"data":[1,2,3]}]}`,
		"an error":      `{"error":"out of memory"}`,
		"error and all": `{"error":"x","outputs":[{"name":"y","datatype":"FP32","shape":[4],"data":[1,2,3,4]}]}`,
		"no outputs":    `{"outputs":[]}`,
		"cut off":       `{"outputs":[{"name":"y","datatype":"FP32","shape":[4],"data":[1,2`,
		"another list":  `{"scores":[1,2,3,4],"outputs":[{"name":"y","datatype":"FP32","shape":[4],"data":[1,2,3,4]}]}`,
		"scalar output": `{"outputs":[{"name":"y","datatype":"FP32","shape":[],"data":[1]}]}`,
	} {
		if got, err := (V2{}).Split([]*Request{r, r}, []byte(answer)); err == nil {
			t.Errorf("%s: answered %s", name, got)
		}
	}
	one, _ := V1{}.Parse([]byte(`{"instances":[1,2]}`))
	for name, answer := range map[string]string{
		"short": `{"predictions":[1,2,3]}`, "long": `{"predictions":[1,2,3,4,5]}`, "error": `{"error":"no"}`,
		"another list": `{"predictions":[1,2,3,4],"p":[1,2,3,4]}`,
	} {
		if got, err := (V1{}).Split([]*Request{one, one}, []byte(answer)); err == nil {
			t.Errorf("V1 %s: answered %s", name, got)
		}
	}
}

func TestEchoesID(t *testing.T) {
	with, _ := V2{}.Parse([]byte(`{"id":"a\"b","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`))
	got, err := V2{}.Split([]*Request{with},
		[]byte(`{"id":"other","model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[0.50]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"outputs":[{"name":"y","datatype":"FP32","shape":[1],"data":[0.50]}],"model_name":"m","id":"a\"b"}`
	if string(got[0]) != want {
		t.Errorf("%s\nwant %s", got[0], want)
	}
}

// FuzzV2 checks that what is accepted is JSON for encoding/json as well, and that a merged batch
// of a request with itself has twice its rows.
func FuzzV2(f *testing.F) {
	f.Add([]byte(infer(`{"name":"x","datatype":"FP32","shape":[2,1],"data":[1.5,2e3]}`)))
	f.Add([]byte(
		`{"id":"q","parameters":{"a":[{}]},"inputs":[{"name":"t","datatype":"BYTES","shape":[1],"data":["\ud83d\ude00"]}]}`))
	f.Add([]byte(infer(`{"name":"x","datatype":"UINT8","shape":[2,2],"data":[[1,2],[3,255]]}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := V2{}.Parse(body)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("accepted what is not JSON: %q", body)
		}
		if r.Reason != "" {
			return
		}
		var in inferJSON
		merged := V2{}.Merge([]*Request{r, r})
		if err := json.Unmarshal(merged, &in); err != nil {
			// Names that differ by case alone are one field for encoding/json.
			if !json.Valid(merged) {
				t.Fatalf("merged %q: %v", merged, err)
			}
			return
		}
		again, err := V2{}.Parse(merged)
		if err != nil || again.Rows != 2*r.Rows || again.Key != r.Key {
			t.Fatalf("merged %q: %v %+v", merged, err, again)
		}
	})
}

// FuzzV1 is FuzzV2 for instances.
func FuzzV1(f *testing.F) {
	f.Add([]byte(`{"instances":[[1,2.5],[3,4]],"signature_name":"s"}`))
	f.Add([]byte(`{"instances":[{"a":[true],"b":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := V1{}.Parse(body)
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("accepted what is not JSON: %q", body)
		}
		if r.Reason != "" {
			return
		}
		merged := V1{}.Merge([]*Request{r, r})
		again, err := V1{}.Parse(merged)
		if err != nil || again.Rows != 2*r.Rows || again.Key != r.Key {
			t.Fatalf("merged %q: %v %+v", merged, err, again)
		}
	})
}

// FuzzSplit checks that an answer of any bytes is divided completely or refused.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(`{"outputs":[{"name":"y","datatype":"FP32","shape":[3,1],"data":[1,2,3]}]}`))
	f.Add([]byte(`{"predictions":[[1],[2],[3]]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		a, _ := V2{}.Parse([]byte(infer(`{"name":"x","datatype":"FP32","shape":[1],"data":[1]}`)))
		b, _ := V2{}.Parse([]byte(infer(`{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}`)))
		if got, err := (V2{}).Split([]*Request{a, b}, answer); err == nil {
			for i, g := range got {
				if !json.Valid(g) {
					t.Fatalf("answer %d of %q is not JSON: %q", i, answer, g)
				}
			}
		}
		c, _ := V1{}.Parse([]byte(`{"instances":[1]}`))
		d, _ := V1{}.Parse([]byte(`{"instances":[1,2]}`))
		if got, err := (V1{}).Split([]*Request{c, d}, answer); err == nil {
			for i, g := range got {
				if !json.Valid(g) {
					t.Fatalf("answer %d of %q is not JSON: %q", i, answer, g)
				}
			}
		}
	})
}
