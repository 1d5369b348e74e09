package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/gateway/inference"
)

// GRPC is the Open Inference Protocol over gRPC: bodies are messages of ModelInfer
// (https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md).
type GRPC struct{}

// elementSize is the bytes of one element in raw contents; BYTES elements have a length of 4 bytes
// in front.
var elementSize = map[string]int{
	"BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
	"FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "BYTES": 0,
}

// ModelOf returns the model and the version that a message of ModelInfer names.
func ModelOf(message []byte) (name, version string, err error) {
	m := &inference.ModelInferRequest{}
	if err := proto.Unmarshal(message, m); err != nil {
		return "", "", malformed("read the request: %v", err)
	}
	return m.GetModelName(), m.GetModelVersion(), nil
}

// Parse implements [Codec].
func (GRPC) Parse(body []byte) (*Request, error) {
	m := &inference.ModelInferRequest{}
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, malformed("read the request: %v", err)
	}
	r := &Request{Body: body, message: m}
	if len(m.GetInputs()) == 0 {
		return nil, malformed("the request has no inputs")
	}
	raw := m.GetRawInputContents()
	if len(raw) > 0 && len(raw) != len(m.GetInputs()) {
		return nil, malformed("the request has %d inputs and %d raw contents", len(m.GetInputs()), len(raw))
	}
	seen := map[string]bool{}
	for i, in := range m.GetInputs() {
		if seen[in.GetName()] {
			return nil, malformed("two inputs have the name %.64q", in.GetName())
		}
		seen[in.GetName()] = true
		r.Names = append(r.Names, in.GetName())
		if err := r.checkMessage(i, in, raw); err != nil {
			return nil, err
		}
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		r.passThrough("the request has unknown fields")
	}
	for name := range m.GetParameters() {
		if special := specialParameter([]byte(name)); special != "" {
			r.passThrough("the request has " + special)
		}
	}
	if r.Reason == "" {
		r.Key = messageKey(m)
	}
	return r, nil
}

// checkMessage compares the contents of an input with its shape.
func (r *Request) checkMessage(i int, in *inference.ModelInferRequest_InferInputTensor, raw [][]byte) error {
	rows, each, err := shapeOf(in.GetName(), in.GetShape())
	if err != nil {
		return err
	}
	size, known := elementSize[in.GetDatatype()]
	for name := range in.GetParameters() {
		if special := specialParameter([]byte(name)); special != "" {
			r.passThrough("an input has " + special)
			return nil
		}
	}
	if !known {
		r.passThrough(fmt.Sprintf("datatype %q is not known", in.GetDatatype()))
		return nil
	}
	if len(in.GetShape()) == 0 {
		r.passThrough("an input has no dimension")
		return nil
	}
	found := 0
	if len(raw) > 0 {
		if found, err = countRaw(raw[i], size); err != nil {
			return malformed("input %.64q: %v", in.GetName(), err)
		}
	} else {
		var plain bool
		if found, plain = countContents(in.GetDatatype(), in.GetContents()); !plain {
			r.passThrough("the contents of " + in.GetName() + " do not have its datatype")
		}
	}
	switch {
	case rows == 0:
		return malformed("input %.64q has 0 rows", in.GetName())
	case found != rows*each:
		return malformed("input %.64q has %d elements and a shape of %d", in.GetName(), found, rows*each)
	case each == 0:
		r.passThrough("an input has an empty dimension")
	case r.Rows == 0:
		r.Rows = rows
	case r.Rows != rows:
		r.passThrough("the inputs have different first dimensions")
	}
	return nil
}

// shapeOf returns the rows of a shape and the elements of each row.
func shapeOf(name string, shape []int64) (rows, each int, err error) {
	const most = 1<<31 - 1
	if len(shape) > maxDepth {
		return 0, 0, malformed("tensor %.64q has %d dimensions", name, len(shape))
	}
	total := int64(1)
	each = 1
	for i, n := range shape {
		if n < 0 || n > most {
			return 0, 0, malformed("tensor %.64q has the dimension %d: expected 0 to %d", name, n, most)
		}
		if total *= max(1, n); total > most {
			return 0, 0, malformed("the shape of tensor %.64q has more than %d elements", name, most)
		}
		if i == 0 {
			rows = int(n)
			continue
		}
		each *= int(n)
	}
	return rows, each, nil
}

// countRaw counts the elements of raw contents.
func countRaw(raw []byte, size int) (int, error) {
	if size > 0 {
		if len(raw)%size != 0 {
			return 0, fmt.Errorf("%d bytes are no whole elements of %d bytes", len(raw), size)
		}
		return len(raw) / size, nil
	}
	ends, err := textEnds(raw)
	return len(ends), err
}

// textEnds returns where each element of raw BYTES contents ends.
func textEnds(raw []byte) ([]int, error) {
	var ends []int
	for at := 0; at < len(raw); {
		if len(raw)-at < 4 {
			return nil, errors.New("an element of BYTES has no length")
		}
		n := int64(binary.LittleEndian.Uint32(raw[at:]))
		if n > int64(len(raw)-at-4) {
			return nil, errors.New("an element of BYTES is cut off")
		}
		at += 4 + int(n)
		ends = append(ends, at)
	}
	return ends, nil
}

// countContents counts typed contents; false where they are of another type or out of its range.
func countContents(datatype string, c *inference.InferTensorContents) (int, bool) {
	counts := map[byte]int{
		'b': len(c.GetBoolContents()), 'i': len(c.GetIntContents()), 'l': len(c.GetInt64Contents()),
		'u': len(c.GetUintContents()), 'v': len(c.GetUint64Contents()), 'f': len(c.GetFp32Contents()),
		'd': len(c.GetFp64Contents()), 's': len(c.GetBytesContents()),
	}
	field := map[string]byte{
		"BOOL": 'b', "INT8": 'i', "INT16": 'i', "INT32": 'i', "INT64": 'l', "UINT8": 'u', "UINT16": 'u', "UINT32": 'u',
		"UINT64": 'v', "FP32": 'f', "FP64": 'd', "BYTES": 's',
	}[datatype]
	plain := field != 0 && len(c.ProtoReflect().GetUnknown()) == 0
	for f, n := range counts {
		plain = plain && (f == field || n == 0)
	}
	d := datatypes[datatype]
	for _, v := range c.GetIntContents() {
		plain = plain && int64(v) >= d.low && (v < 0 || uint64(v) <= d.high)
	}
	for _, v := range c.GetUintContents() {
		plain = plain && uint64(v) <= d.high
	}
	return counts[field], plain
}

// messageKey returns what the requests of one batch have in common.
func messageKey(m *inference.ModelInferRequest) string {
	rest := &inference.ModelInferRequest{
		ModelName: m.GetModelName(), ModelVersion: m.GetModelVersion(), Parameters: m.GetParameters(),
		Outputs: m.GetOutputs(),
	}
	for _, in := range m.GetInputs() {
		rest.Inputs = append(rest.Inputs, &inference.ModelInferRequest_InferInputTensor{
			Name: in.GetName(), Datatype: in.GetDatatype(), Shape: in.GetShape()[1:], Parameters: in.GetParameters(),
		})
	}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(rest) // it was read from such a message
	return fmt.Sprint(len(m.GetRawInputContents()) > 0, ":") + string(b)
}

// Merge implements [Codec].
func (GRPC) Merge(requests []*Request) []byte {
	if len(requests) == 1 {
		return requests[0].Body
	}
	first := requests[0].message
	out := &inference.ModelInferRequest{
		ModelName: first.GetModelName(), ModelVersion: first.GetModelVersion(), Parameters: first.GetParameters(),
		Outputs: first.GetOutputs(),
	}
	for i, in := range first.GetInputs() {
		one := &inference.ModelInferRequest_InferInputTensor{
			Name: in.GetName(), Datatype: in.GetDatatype(), Shape: slices.Clone(in.GetShape()),
			Parameters: in.GetParameters(),
		}
		one.Shape[0] = int64(totalRows(requests))
		var raw []byte
		for _, r := range requests {
			if len(first.GetRawInputContents()) > 0 {
				raw = append(raw, r.message.GetRawInputContents()[i]...)
				continue
			}
			if one.Contents == nil {
				one.Contents = &inference.InferTensorContents{}
			}
			appendContents(one.Contents, r.message.GetInputs()[i].GetContents())
		}
		out.Inputs = append(out.Inputs, one)
		if len(first.GetRawInputContents()) > 0 {
			out.RawInputContents = append(out.RawInputContents, raw)
		}
	}
	b, _ := proto.Marshal(out) // its parts were read from such messages
	return b
}

func appendContents(to, from *inference.InferTensorContents) {
	to.BoolContents = append(to.BoolContents, from.GetBoolContents()...)
	to.IntContents = append(to.IntContents, from.GetIntContents()...)
	to.Int64Contents = append(to.Int64Contents, from.GetInt64Contents()...)
	to.UintContents = append(to.UintContents, from.GetUintContents()...)
	to.Uint64Contents = append(to.Uint64Contents, from.GetUint64Contents()...)
	to.Fp32Contents = append(to.Fp32Contents, from.GetFp32Contents()...)
	to.Fp64Contents = append(to.Fp64Contents, from.GetFp64Contents()...)
	to.BytesContents = append(to.BytesContents, from.GetBytesContents()...)
}

// Split implements [Codec].
func (GRPC) Split(requests []*Request, answer []byte) ([][]byte, error) {
	m := &inference.ModelInferResponse{}
	if err := proto.Unmarshal(answer, m); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	raw := m.GetRawOutputContents()
	switch {
	case len(m.GetOutputs()) == 0:
		return nil, errors.New("the answer has no outputs")
	case len(raw) > 0 && len(raw) != len(m.GetOutputs()):
		return nil, fmt.Errorf("the answer has %d outputs and %d raw contents", len(m.GetOutputs()), len(raw))
	case len(requests) > 1 && len(m.ProtoReflect().GetUnknown()) > 0:
		return nil, errors.New("the answer has unknown fields")
	}
	parts := make([]*inference.ModelInferResponse, len(requests))
	for i, r := range requests {
		parts[i] = &inference.ModelInferResponse{
			ModelName: m.GetModelName(), ModelVersion: m.GetModelVersion(), Parameters: m.GetParameters(),
			Id: r.message.GetId(),
		}
	}
	for i, out := range m.GetOutputs() {
		var one []byte
		if len(raw) > 0 {
			one = raw[i]
		}
		if err := splitMessage(parts, requests, out, one, len(raw) > 0); err != nil {
			return nil, fmt.Errorf("output %.64q: %w", out.GetName(), err)
		}
	}
	if len(requests) == 1 && requests[0].message.GetId() == m.GetId() {
		return [][]byte{answer}, nil
	}
	answers := make([][]byte, len(requests))
	for i, part := range parts {
		answers[i], _ = proto.Marshal(part) // its parts were read from such a message
	}
	return answers, nil
}

// splitMessage divides one output by the rows of requests.
func splitMessage(parts []*inference.ModelInferResponse, requests []*Request,
	out *inference.ModelInferResponse_InferOutputTensor, raw []byte, isRaw bool) error {
	rows, each, err := shapeOf(out.GetName(), out.GetShape())
	if err != nil {
		return err
	}
	total := totalRows(requests)
	if len(out.GetShape()) == 0 || rows != total {
		return fmt.Errorf("it has the shape %v and the batch has %d rows", out.GetShape(), total)
	}
	size, known := elementSize[out.GetDatatype()]
	var ends []int
	found := 0
	switch {
	case !known:
		return fmt.Errorf("datatype %q is not known", out.GetDatatype())
	case !isRaw:
		var plain bool
		if found, plain = countContents(out.GetDatatype(), out.GetContents()); !plain {
			return errors.New("its contents do not have its datatype")
		}
	case size == 0:
		if ends, err = textEnds(raw); err != nil {
			return err
		}
		found = len(ends)
	default:
		if found, err = countRaw(raw, size); err != nil {
			return err
		}
	}
	if found != total*each {
		return fmt.Errorf("it has %d elements and the batch needs %d", found, total*each)
	}
	from := 0
	for i, r := range requests {
		to := from + r.Rows*each
		one := &inference.ModelInferResponse_InferOutputTensor{
			Name: out.GetName(), Datatype: out.GetDatatype(), Shape: slices.Clone(out.GetShape()),
			Parameters: out.GetParameters(),
		}
		one.Shape[0] = int64(r.Rows)
		switch {
		case !isRaw:
			one.Contents = cutContents(out.GetContents(), from, to)
		case size > 0:
			parts[i].RawOutputContents = append(parts[i].RawOutputContents, raw[from*size:to*size])
		default:
			at := func(n int) int {
				if n == 0 {
					return 0
				}
				return ends[n-1]
			}
			parts[i].RawOutputContents = append(parts[i].RawOutputContents, raw[at(from):at(to)])
		}
		parts[i].Outputs = append(parts[i].Outputs, one)
		from = to
	}
	return nil
}

// cutContents returns elements of contents, of which only one type is there.
func cutContents(c *inference.InferTensorContents, from, to int) *inference.InferTensorContents {
	return &inference.InferTensorContents{
		BoolContents: part(c.GetBoolContents(), from, to), IntContents: part(c.GetIntContents(), from, to),
		Int64Contents: part(c.GetInt64Contents(), from, to), UintContents: part(c.GetUintContents(), from, to),
		Uint64Contents: part(c.GetUint64Contents(), from, to), Fp32Contents: part(c.GetFp32Contents(), from, to),
		Fp64Contents: part(c.GetFp64Contents(), from, to), BytesContents: part(c.GetBytesContents(), from, to),
	}
}

func part[T any](all []T, from, to int) []T {
	if len(all) == 0 {
		return nil
	}
	return all[from:to]
}

// validText reports whether all texts of a tensor fit into JSON.
func validText(texts [][]byte) bool {
	return !slices.ContainsFunc(texts, func(b []byte) bool { return !utf8.Valid(b) })
}

// GRPCTimeout reads the header grpc-timeout, such as 200m; false where it is none
// (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
func GRPCTimeout(text string) (nanoseconds int64, ok bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	unit, ok := map[byte]int64{
		'H': 3600e9, 'M': 60e9, 'S': 1e9, 'm': 1e6, 'u': 1e3, 'n': 1,
	}[text[len(text)-1]]
	if !ok || strings.Trim(text[:len(text)-1], "0123456789") != "" {
		return 0, false
	}
	n := int64(0)
	for _, d := range text[:len(text)-1] {
		n = 10*n + int64(d-'0')
	}
	if n > (1<<63-1)/unit {
		return 1<<63 - 1, true
	}
	return n * unit, true
}
