package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// V1 is the prediction protocol of TensorFlow Serving and KServe: a list of instances in, a list
// of predictions in the same order out (https://www.tensorflow.org/tfx/serving/api_rest).
type V1 struct{}

// The marks of numbers in a signature. Raw keys of JSON have no control characters.
const (
	markInteger = '\x01'
	markFloat   = '\x02'
)

// Parse implements [Codec].
func (V1) Parse(body []byte) (*Request, error) {
	all, order, err := parse(body)
	if err != nil {
		return nil, err
	}
	r := &Request{Body: body}
	raw, ok := all["instances"]
	if !ok {
		if all["inputs"] != nil {
			return r.passThrough("the request has inputs in columns"), nil
		}
		return nil, malformed("the request has no instances")
	}
	if raw[0] != '[' {
		return nil, malformed("the instances are not a list")
	}
	list, err := elements(raw)
	if err != nil {
		return nil, checkText(err)
	}
	if r.Rows = len(list); r.Rows == 0 {
		return nil, malformed("the list of instances is empty")
	}
	for _, name := range order {
		if name != "instances" {
			r.rest = appendMember(append(r.rest, ','), name, all[name])
		}
	}
	signature := ""
	for i, instance := range list {
		s, fits := signatureOf(instance, 0)
		if fits && i > 0 {
			s, fits = unify(signature, s)
		}
		if !fits {
			return r.passThrough("the instances differ in type or shape"), nil
		}
		signature = s
	}
	r.rows, r.Key = inner(raw), string(r.rest)+"\x00"+signature
	return r, nil
}

// signatureOf returns the type and shape of a value: numbers are integers or floating point,
// because servers that build an array take its type from all its elements. It returns false for
// values that differ within one array or that a parser might refuse.
func signatureOf(value []byte, depth int) (string, bool) {
	switch value[0] {
	case '"':
		return "s", pairedSurrogates(value)
	case 't', 'f':
		return "b", true
	case 'n':
		return "0", true
	case '[':
		return arraySignature(value, depth)
	case '{':
		return objectSignature(value, depth)
	}
	if strings.ContainsAny(string(value), ".eE") {
		return string(markFloat), plainNumber(value)
	}
	// A larger integer makes an array of objects in NumPy.
	return string(markInteger), datatypes["INT64"].holds(value)
}

func arraySignature(value []byte, depth int) (string, bool) {
	signature, n, ok := "", 0, true
	c := cursor{b: value}
	_, err := c.array(depth, func(e []byte) error {
		s, fits := signatureOf(e, depth+1)
		if ok = ok && fits; ok && n > 0 {
			s, ok = unify(signature, s)
		}
		signature = s
		n++
		return nil
	})
	return "[" + strconv.Itoa(n) + ":" + signature + "]", ok && err == nil
}

func objectSignature(value []byte, depth int) (string, bool) {
	all, order, err := members(value)
	if err != nil {
		return "", false
	}
	slices.Sort(order)
	var b strings.Builder
	b.WriteByte('{')
	for _, key := range order {
		s, ok := signatureOf(all[key], depth+1)
		if !ok {
			return "", false
		}
		b.WriteString(strconv.Quote(key) + s + ",")
	}
	return b.String() + "}", true
}

// unify returns the signature of values that may be in one array: an integer among floating-point
// numbers is one of them.
func unify(a, b string) (string, bool) {
	if a == b {
		return a, true
	}
	if len(a) != len(b) {
		return "", false
	}
	out := []byte(a)
	for i := range out {
		switch {
		case out[i] == b[i]:
		case out[i] <= markFloat && b[i] <= markFloat:
			out[i] = markFloat
		default:
			return "", false
		}
	}
	return string(out), true
}

// Merge implements [Codec].
func (V1) Merge(requests []*Request) []byte {
	if len(requests) == 1 {
		return requests[0].Body
	}
	size := 64
	for _, r := range requests {
		size += len(r.Body)
	}
	b := append(make([]byte, 0, size), `{"instances":[`...)
	for i, r := range requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, r.rows...)
	}
	return append(append(append(b, ']'), requests[0].rest...), '}')
}

// Split implements [Codec].
func (V1) Split(requests []*Request, answer []byte) ([][]byte, error) {
	all, order, err := members(answer)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if all["error"] != nil {
		return nil, fmt.Errorf("the answer has an error: %.200s", all["error"])
	}
	raw := all["predictions"]
	if raw == nil || raw[0] != '[' {
		return nil, errors.New("the answer has no list of predictions")
	}
	parts, err := cut(raw, requests, 1)
	if err != nil {
		return nil, fmt.Errorf("predictions: %w", err)
	}
	if len(requests) == 1 {
		return [][]byte{answer}, nil
	}
	var common []byte
	for _, name := range order {
		switch v := all[name]; {
		case name == "predictions":
		case v[0] == '[' || v[0] == '{':
			return nil, fmt.Errorf("the answer has a member %.64q that cannot be divided by rows", name)
		default:
			common = appendMember(append(common, ','), name, v)
		}
	}
	out := make([][]byte, len(requests))
	for i, part := range parts {
		b := append(make([]byte, 0, len(part)+len(common)+32), `{"predictions":[`...)
		out[i] = append(append(append(append(b, part...), ']'), common...), '}')
	}
	return out, nil
}
