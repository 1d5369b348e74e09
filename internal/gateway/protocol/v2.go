package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// V2 is the Open Inference Protocol over REST
// (https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md).
type V2 struct{}

// Parse implements [Codec].
func (V2) Parse(body []byte) (*Request, error) {
	all, order, err := parse(body)
	if err != nil {
		return nil, err
	}
	r := &Request{Body: body, ID: all["id"]}
	if r.ID != nil && r.ID[0] != '"' {
		return nil, malformed("the id is not a string")
	}
	raw, ok := all["inputs"]
	if !ok || raw[0] != '[' {
		return nil, malformed("the request has no list of inputs")
	}
	inputs, err := elements(raw)
	if err != nil {
		return nil, checkText(err)
	}
	if len(inputs) == 0 {
		return nil, malformed("the list of inputs is empty")
	}
	var rest bytes.Buffer
	for _, name := range order {
		switch name {
		case "id", "inputs":
		case "parameters", "outputs":
			fmt.Fprintf(&rest, ",%q:%s", name, all[name])
		default:
			r.passThrough("the member " + strconv.Quote(name) + " is not part of the protocol")
		}
	}
	r.rest = rest.Bytes()
	if special := specialParameter(r.rest); special != "" {
		r.passThrough("the request has " + special)
	}
	if err := r.readInputs(inputs); err != nil {
		return nil, err
	}
	if r.Reason == "" {
		r.Key = r.key()
	}
	return r, nil
}

// specialParameter names a parameter that makes answers depend on more than the rows: sequences,
// tensors in shared memory, and the binary tensor extension
// (https://github.com/triton-inference-server/server/tree/main/docs/protocol).
func specialParameter(raw []byte) string {
	for _, name := range []string{"sequence_", "binary_data", "shared_memory", "classification"} {
		if bytes.Contains(raw, []byte(name)) {
			return "a parameter " + name
		}
	}
	return ""
}

// readInputs reads the tensors of a request.
func (r *Request) readInputs(inputs [][]byte) error {
	seen := map[string]bool{}
	for _, raw := range inputs {
		if raw[0] != '{' {
			return malformed("an input is not an object")
		}
		all, _, err := members(raw)
		if err != nil {
			return checkText(err)
		}
		for _, key := range []string{"name", "datatype"} {
			if v := all[key]; v == nil || v[0] != '"' {
				return malformed("an input has no %s", key)
			}
		}
		name, err := unquote(all["name"])
		if err != nil {
			return err
		}
		if seen[name] {
			return malformed("two inputs have the name %.64q", name)
		}
		seen[name] = true
		r.Names = append(r.Names, name)
		if err := r.readInput(name, all); err != nil {
			return err
		}
	}
	return nil
}

// readInput reads one tensor, and compares its data with its shape.
func (r *Request) readInput(name string, all map[string][]byte) error {
	shape, err := readShape(name, all["shape"])
	if err != nil {
		return err
	}
	for key := range all {
		switch key {
		case "name", "datatype", "shape", "data", "parameters":
		default:
			r.passThrough("an input has the member " + strconv.Quote(key))
		}
	}
	t := tensor{name: all["name"], datatype: all["datatype"], parameters: all["parameters"]}
	if special := specialParameter(t.parameters); special != "" {
		r.passThrough("an input has " + special)
		return nil
	}
	data := all["data"]
	if data == nil || data[0] != '[' {
		return malformed("input %.64q has no data", name)
	}
	text, err := unquote(t.datatype)
	if err != nil {
		return err
	}
	kind, known := datatypes[text]
	if !known {
		r.passThrough("datatype " + strconv.Quote(text) + " is not known")
		return nil
	}
	found, plain, err := checkData(name, data, shape, kind)
	switch {
	case err != nil:
		return err
	case !plain:
		r.passThrough("an element of " + strconv.Quote(name) + " is not a plain " + text)
	case found != len(shape) && found != 1:
		r.passThrough("the data of " + strconv.Quote(name) + " is nested in another way than its shape")
	}
	if len(shape) == 0 {
		r.passThrough("an input has no dimension")
		return nil
	}
	switch {
	case shape[0] == 0:
		return malformed("input %.64q has 0 rows", name)
	case r.Rows == 0:
		r.Rows = shape[0]
	case r.Rows != shape[0]:
		r.passThrough("the inputs have different first dimensions")
	}
	for _, n := range shape[1:] {
		t.trailing = append(append(t.trailing, ','), strconv.Itoa(n)...)
		if n == 0 {
			r.passThrough("an input has an empty dimension")
		}
	}
	if t.data = inner(data); found > 1 {
		t.trailing = append(t.trailing, '*') // nested and flat data do not mix
	}
	r.tensors = append(r.tensors, t)
	return nil
}

// readShape reads a list of dimensions.
func readShape(name string, raw []byte) ([]int, error) {
	if raw == nil || raw[0] != '[' {
		return nil, malformed("input %.64q has no shape", name)
	}
	list, err := elements(raw)
	if err != nil {
		return nil, checkText(err)
	}
	if len(list) > maxDepth {
		return nil, malformed("input %.64q has %d dimensions", name, len(list))
	}
	out, total := make([]int, len(list)), 1
	for i, raw := range list {
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || n < 0 {
			return nil, malformed("input %.64q has the dimension %.32q: expected 0 to 2147483647", name, raw)
		}
		out[i] = int(n)
		if n > 0 && total > math.MaxInt32/int(n) {
			return nil, malformed("the shape of input %.64q has more than %d elements", name, math.MaxInt32)
		}
		total *= max(1, int(n))
	}
	return out, nil
}

// product returns the elements of a shape.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// checkData counts the elements of a tensor, flat or nested as its shape. It returns how deep
// they are nested, and whether all of them are plain values of the datatype.
func checkData(name string, data []byte, shape []int, kind datatype) (depth int, plain bool, err error) {
	plain = true
	c := cursor{b: data}
	if first := firstElement(data); len(first) > 0 && first[0] == '[' {
		depth, err = len(shape), nil
		if !nested(&c, shape, 0, kind, &plain) {
			err = malformed("the nested data of input %.64q does not have its shape", name)
		}
		return depth, plain, err
	}
	n, err := c.array(0, func(e []byte) error {
		plain = plain && kind.harmless(e)
		return nil
	})
	if err != nil {
		return 1, plain, checkText(err)
	}
	if want := product(shape); n != want {
		return 1, plain, malformed("input %.64q has %d elements and a shape of %d", name, n, want)
	}
	return 1, plain, nil
}

// firstElement returns the text of an array after its bracket and space.
func firstElement(array []byte) []byte { return bytes.TrimLeft(array[1:], " \t\r\n") }

// nested reports whether data is nested exactly as a shape.
func nested(c *cursor, shape []int, depth int, kind datatype, plain *bool) bool {
	if len(shape) == 0 || c.peek() != '[' {
		return false
	}
	deeper := errors.New("nested otherwise")
	n, err := c.array(depth, func(e []byte) error {
		if len(shape) == 1 {
			*plain = *plain && kind.harmless(e)
			if e[0] == '[' || e[0] == '{' {
				return deeper
			}
			return nil
		}
		if !nested(&cursor{b: e}, shape[1:], depth+1, kind, plain) {
			return deeper
		}
		return nil
	})
	return err == nil && n == shape[0]
}

// key returns what requests of one batch have in common.
func (r *Request) key() string {
	var b strings.Builder
	b.Write(r.rest)
	for _, t := range r.tensors {
		for _, part := range [][]byte{t.name, t.datatype, t.parameters, t.trailing} {
			b.WriteByte(0)
			b.Write(part)
		}
	}
	return b.String()
}

// Merge implements [Codec].
func (V2) Merge(requests []*Request) []byte {
	if len(requests) == 1 {
		return requests[0].Body
	}
	first, rows, size := requests[0], totalRows(requests), 256
	for _, r := range requests {
		size += len(r.Body)
	}
	b := append(make([]byte, 0, size), `{"inputs":[`...)
	for i, t := range first.tensors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"name":`...), t.name...)
		b = append(append(b, `,"datatype":`...), t.datatype...)
		b = strconv.AppendInt(append(b, `,"shape":[`...), int64(rows), 10)
		b = append(append(b, bytes.TrimSuffix(t.trailing, []byte("*"))...), ']')
		if t.parameters != nil {
			b = append(append(b, `,"parameters":`...), t.parameters...)
		}
		b = append(b, `,"data":[`...)
		for j, r := range requests {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, r.tensors[i].data...)
		}
		b = append(b, "]}"...)
	}
	return append(append(append(b, ']'), first.rest...), '}')
}

// Split implements [Codec].
func (V2) Split(requests []*Request, answer []byte) ([][]byte, error) {
	all, order, err := members(answer)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if all["error"] != nil {
		return nil, fmt.Errorf("the answer has an error: %.200s", all["error"])
	}
	if raw := all["outputs"]; raw == nil || raw[0] != '[' {
		return nil, errors.New("the answer has no outputs")
	}
	outputs, err := elements(all["outputs"])
	if err != nil {
		return nil, fmt.Errorf("read the outputs: %w", err)
	}
	if len(outputs) == 0 {
		return nil, errors.New("the answer has no outputs")
	}
	parts := make([]output, len(outputs))
	for i, raw := range outputs {
		if parts[i], err = splitOutput(raw, requests); err != nil {
			return nil, err
		}
	}
	if r := requests[0]; len(requests) == 1 && (r.ID == nil || bytes.Equal(r.ID, all["id"])) {
		return [][]byte{answer}, nil
	}
	var common []byte
	for _, name := range order {
		switch v := all[name]; {
		case name == "id" || name == "outputs":
		case len(requests) > 1 && name != "parameters" && (v[0] == '[' || v[0] == '{'):
			return nil, fmt.Errorf("the answer has a member %.64q that cannot be divided by rows", name)
		default:
			common = appendMember(append(common, ','), name, v)
		}
	}
	out := make([][]byte, len(requests))
	for i, r := range requests {
		out[i] = assemble(r, i, common, parts)
	}
	return out, nil
}

// output is one output tensor of a batch, divided by requests.
type output struct {
	head     []byte // its members but shape and data
	trailing []byte
	data     [][]byte
}

// assemble writes the answer to one request of a batch.
func assemble(r *Request, i int, common []byte, parts []output) []byte {
	b := append(make([]byte, 0, 256), `{"outputs":[`...)
	for j, p := range parts {
		if j > 0 {
			b = append(b, ',')
		}
		b = append(append(b, '{'), p.head...)
		b = append(append(strconv.AppendInt(append(b, `"shape":[`...), int64(r.Rows), 10), p.trailing...), ']')
		b = append(append(append(b, `,"data":[`...), p.data[i]...), "]}"...)
	}
	b = append(append(b, ']'), common...)
	if r.ID != nil {
		b = append(append(b, `,"id":`...), r.ID...)
	}
	return append(b, '}')
}

// splitOutput divides an output tensor by the rows of requests.
func splitOutput(raw []byte, requests []*Request) (output, error) {
	var out output
	if raw[0] != '{' {
		return out, errors.New("an output is not an object")
	}
	all, order, err := members(raw)
	if err != nil {
		return out, fmt.Errorf("read an output: %w", err)
	}
	name := all["name"]
	shape, err := readShape(string(name), all["shape"])
	if err != nil {
		return out, fmt.Errorf("read an output: %w", err)
	}
	rows := totalRows(requests)
	if len(shape) == 0 || shape[0] != rows {
		return out, fmt.Errorf("output %.64s has the shape %.64s and the batch has %d rows", name, all["shape"], rows)
	}
	data := all["data"]
	if data == nil || data[0] != '[' {
		return out, fmt.Errorf("output %.64s has no data", name)
	}
	each := product(shape[1:])
	if first := firstElement(data); len(first) > 0 && first[0] == '[' {
		each = 1
	}
	if out.data, err = cut(data, requests, each); err != nil {
		return out, fmt.Errorf("output %.64s: %w", name, err)
	}
	for _, n := range shape[1:] {
		out.trailing = strconv.AppendInt(append(out.trailing, ','), int64(n), 10)
	}
	for _, key := range order {
		if key != "shape" && key != "data" {
			out.head = append(appendMember(out.head, key, all[key]), ',')
		}
	}
	return out, nil
}

// cut divides the elements of an array by the rows of requests, each elements a row.
func cut(array []byte, requests []*Request, each int) ([][]byte, error) {
	out := make([][]byte, 0, len(requests))
	want, rows := totalRows(requests)*each, 0
	c := cursor{b: array}
	next, start, seen := 0, 0, 0
	boundary := func() {
		rows += requests[next].Rows
		next++
	}
	boundary()
	n, err := c.array(0, func(e []byte) error {
		if seen == 0 || start < 0 {
			start = c.i - len(e)
		}
		if seen++; seen == rows*each {
			out = append(out, array[start:c.i])
			if start = -1; next < len(requests) {
				boundary()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n != want || len(out) != len(requests) && each > 0 {
		return nil, fmt.Errorf("it has %d elements and the batch needs %d", n, want)
	}
	for len(out) < len(requests) {
		out = append(out, nil)
	}
	return out, nil
}
