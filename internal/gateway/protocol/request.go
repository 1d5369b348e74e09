package protocol

import (
	"errors"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/gateway/inference"
)

// Request is one parsed inference request.
type Request struct {
	// Body is the text as it came.
	Body []byte
	// ID is the raw text of the caller's id; nil where the request has none.
	ID []byte
	// Rows is how many rows the request has: 0 where they cannot be counted.
	Rows int
	// Reason is why the request cannot share a batch; empty where it can.
	Reason string
	// Key is equal for requests whose rows may be in one batch.
	Key string
	// Names are the input tensors of a V2 request, for comparison with the model's metadata.
	Names []string

	message *inference.ModelInferRequest // of gRPC
	tensors []tensor
	// rest are the other members that all requests of a batch have in common.
	rest []byte
	// rows is the text of the instances of a V1 request.
	rows []byte
}

// tensor is one input of a V2 request.
type tensor struct {
	name, datatype, parameters []byte // raw text
	trailing                   []byte // of the shape, after the first dimension: ",16"
	data                       []byte // text between the brackets
}

// passThrough makes a request one that is sent alone.
func (r *Request) passThrough(reason string) *Request {
	r.Reason = reason
	return r
}

// Codec is one protocol of requests that may share batches.
type Codec interface {
	// Parse reads a request. Its error is an *Error: the request is malformed.
	Parse(body []byte) (*Request, error)
	// Merge returns the body of a batch. The requests have equal keys.
	Merge(requests []*Request) []byte
	// Split returns the answers to the requests of a batch from the answer to the batch. An error
	// means that no caller has an answer.
	Split(requests []*Request, answer []byte) ([][]byte, error)
}

// checkText refuses what no JSON parser accepts or all accept differently.
func checkText(err error) error {
	if err == nil {
		return nil
	}
	var bad *Error
	if errors.As(err, &bad) {
		return bad
	}
	return malformed("read the request: %v", err)
}

// parse reads the members of a request.
func parse(body []byte) (map[string][]byte, []string, error) {
	if !utf8.Valid(body) {
		return nil, nil, malformed("read the request: it is not UTF-8, which JSON is (RFC 8259)")
	}
	all, order, err := members(body)
	return all, order, checkText(err)
}

// totalRows returns the rows of a batch.
func totalRows(requests []*Request) int {
	total := 0
	for _, r := range requests {
		total += r.Rows
	}
	return total
}
