package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/gateway/inference"
)

// jsonTensor is a tensor of V2 over REST.
type jsonTensor struct {
	Name       string         `json:"name"`
	Datatype   string         `json:"datatype"`
	Shape      []int64        `json:"shape"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Data       any            `json:"data,omitempty"`
}

// jsonInfer is a request or an answer of V2 over REST.
type jsonInfer struct {
	ModelName    string         `json:"model_name,omitempty"`
	ModelVersion string         `json:"model_version,omitempty"`
	ID           string         `json:"id,omitempty"`
	Parameters   map[string]any `json:"parameters,omitempty"`
	Inputs       []jsonTensor   `json:"inputs,omitempty"`
	Outputs      []jsonTensor   `json:"outputs,omitempty"`
}

// ToGRPC turns a request of V2 over REST into a message of ModelInfer. Parse has accepted it.
func ToGRPC(r *Request, model, version string) ([]byte, error) {
	var in struct {
		ID         string         `json:"id"`
		Parameters map[string]any `json:"parameters"`
		Inputs     []struct {
			jsonTensor
			Data json.RawMessage `json:"data"`
		} `json:"inputs"`
		Outputs []jsonTensor `json:"outputs"`
	}
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return nil, malformed("read the request: %v", err)
	}
	m := &inference.ModelInferRequest{ModelName: model, ModelVersion: version, Id: in.ID}
	var err error
	if m.Parameters, err = toParameters(in.Parameters); err != nil {
		return nil, err
	}
	for _, t := range in.Inputs {
		one := &inference.ModelInferRequest_InferInputTensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape}
		if one.Parameters, err = toParameters(t.Parameters); err != nil {
			return nil, err
		}
		if one.Contents, err = toContents(t.Datatype, t.Data); err != nil {
			return nil, malformed("input %.64q: %v", t.Name, err)
		}
		m.Inputs = append(m.Inputs, one)
	}
	for _, t := range in.Outputs {
		one := &inference.ModelInferRequest_InferRequestedOutputTensor{Name: t.Name}
		if one.Parameters, err = toParameters(t.Parameters); err != nil {
			return nil, err
		}
		m.Outputs = append(m.Outputs, one)
	}
	return proto.Marshal(m)
}

func toParameters(from map[string]any) (map[string]*inference.InferParameter, error) {
	if len(from) == 0 {
		return nil, nil
	}
	out := map[string]*inference.InferParameter{}
	for name, v := range from {
		switch v := v.(type) {
		case bool:
			out[name] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: v}}
		case string:
			out[name] = &inference.InferParameter{
				ParameterChoice: &inference.InferParameter_StringParam{StringParam: v},
			}
		case float64:
			if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
				return nil, malformed("parameter %.64q is %v: gRPC has whole numbers, texts and booleans", name, v)
			}
			out[name] = &inference.InferParameter{
				ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(v)},
			}
		default:
			return nil, malformed("parameter %.64q is neither a number, a text nor a boolean", name)
		}
	}
	return out, nil
}

func fromParameters(from map[string]*inference.InferParameter) map[string]any {
	if len(from) == 0 {
		return nil
	}
	out := map[string]any{}
	for name, p := range from {
		switch v := p.GetParameterChoice().(type) {
		case *inference.InferParameter_BoolParam:
			out[name] = v.BoolParam
		case *inference.InferParameter_Int64Param:
			out[name] = v.Int64Param
		case *inference.InferParameter_StringParam:
			out[name] = v.StringParam
		}
	}
	return out
}

// flat decodes data, nested or not, as a list.
func flat[T any](raw json.RawMessage) ([]T, error) {
	var out []T
	c := cursor{b: raw}
	if first := firstElement(raw); len(first) > 0 && first[0] == '[' {
		_, err := c.array(0, func(e []byte) error {
			part, err := flat[T](e)
			out = append(out, part...)
			return err
		})
		return out, err
	}
	err := json.Unmarshal(raw, &out)
	return out, err
}

func toContents(datatype string, raw json.RawMessage) (*inference.InferTensorContents, error) {
	c := &inference.InferTensorContents{}
	var err error
	switch datatype {
	case "BOOL":
		c.BoolContents, err = flat[bool](raw)
	case "INT8", "INT16", "INT32":
		c.IntContents, err = flat[int32](raw)
	case "INT64":
		c.Int64Contents, err = flat[int64](raw)
	case "UINT8", "UINT16", "UINT32":
		c.UintContents, err = flat[uint32](raw)
	case "UINT64":
		c.Uint64Contents, err = flat[uint64](raw)
	case "FP32":
		c.Fp32Contents, err = flat[float32](raw)
	case "FP64":
		c.Fp64Contents, err = flat[float64](raw)
	case "BYTES":
		var texts []string
		texts, err = flat[string](raw)
		for _, t := range texts {
			c.BytesContents = append(c.BytesContents, []byte(t))
		}
	default:
		err = fmt.Errorf("datatype %.16q cannot be sent to a gRPC server as JSON", datatype)
	}
	return c, err
}

// FromGRPC turns an answer of ModelInfer into one of V2 over REST.
func FromGRPC(answer []byte) ([]byte, error) {
	m := &inference.ModelInferResponse{}
	if err := proto.Unmarshal(answer, m); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	out := jsonInfer{
		ModelName: m.GetModelName(), ModelVersion: m.GetModelVersion(), ID: m.GetId(),
		Parameters: fromParameters(m.GetParameters()),
	}
	for i, t := range m.GetOutputs() {
		contents := t.GetContents()
		if raw := m.GetRawOutputContents(); len(raw) > i {
			var err error
			if contents, err = fromRaw(t.GetDatatype(), raw[i]); err != nil {
				return nil, fmt.Errorf("output %.64q: %w", t.GetName(), err)
			}
		}
		data, err := fromContents(t.GetDatatype(), contents)
		if err != nil {
			return nil, fmt.Errorf("output %.64q: %w", t.GetName(), err)
		}
		out.Outputs = append(out.Outputs, jsonTensor{
			Name: t.GetName(), Datatype: t.GetDatatype(), Shape: t.GetShape(),
			Parameters: fromParameters(t.GetParameters()),
			Data:       data,
		})
	}
	return json.Marshal(out)
}

// GRPCToREST turns a message of ModelInfer into a request of V2 over REST.
func GRPCToREST(message []byte) ([]byte, error) {
	m := &inference.ModelInferRequest{}
	if err := proto.Unmarshal(message, m); err != nil {
		return nil, malformed("read the request: %v", err)
	}
	out := jsonInfer{ID: m.GetId(), Parameters: fromParameters(m.GetParameters())}
	for i, t := range m.GetInputs() {
		contents := t.GetContents()
		if raw := m.GetRawInputContents(); len(raw) > i {
			var err error
			if contents, err = fromRaw(t.GetDatatype(), raw[i]); err != nil {
				return nil, malformed("input %.64q: %v", t.GetName(), err)
			}
		}
		data, err := fromContents(t.GetDatatype(), contents)
		if err != nil {
			return nil, malformed("input %.64q: %v", t.GetName(), err)
		}
		out.Inputs = append(out.Inputs, jsonTensor{
			Name: t.GetName(), Datatype: t.GetDatatype(), Shape: t.GetShape(),
			Parameters: fromParameters(t.GetParameters()),
			Data:       data,
		})
	}
	for _, t := range m.GetOutputs() {
		out.Outputs = append(out.Outputs, jsonTensor{Name: t.GetName(), Parameters: fromParameters(t.GetParameters())})
	}
	return json.Marshal(out)
}

// RESTToGRPC turns an answer of V2 over REST into one of ModelInfer.
func RESTToGRPC(answer []byte) ([]byte, error) {
	var in struct {
		jsonInfer
		Outputs []struct {
			jsonTensor
			Data json.RawMessage `json:"data"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal(answer, &in); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	m := &inference.ModelInferResponse{ModelName: in.ModelName, ModelVersion: in.ModelVersion, Id: in.ID}
	var err error
	if m.Parameters, err = toParameters(in.Parameters); err != nil {
		return nil, err
	}
	for _, t := range in.Outputs {
		one := &inference.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape}
		if one.Parameters, err = toParameters(t.Parameters); err != nil {
			return nil, err
		}
		if one.Contents, err = toContents(t.Datatype, t.Data); err != nil {
			return nil, fmt.Errorf("output %.64q: %w", t.Name, err)
		}
		m.Outputs = append(m.Outputs, one)
	}
	return proto.Marshal(m)
}

// fromContents returns the data of a tensor for JSON.
func fromContents(datatype string, c *inference.InferTensorContents) (any, error) {
	switch datatype {
	case "BOOL":
		return c.GetBoolContents(), nil
	case "INT8", "INT16", "INT32":
		return c.GetIntContents(), nil
	case "INT64":
		return c.GetInt64Contents(), nil
	case "UINT8", "UINT16", "UINT32":
		return c.GetUintContents(), nil
	case "UINT64":
		return c.GetUint64Contents(), nil
	case "FP32":
		return floats(c.GetFp32Contents(), 32)
	case "FP64":
		return floats(c.GetFp64Contents(), 64)
	case "BYTES":
		if !validText(c.GetBytesContents()) {
			return nil, errors.New("its BYTES are not UTF-8, which JSON needs")
		}
		out := make([]string, len(c.GetBytesContents()))
		for i, b := range c.GetBytesContents() {
			out[i] = string(b)
		}
		return out, nil
	}
	return nil, fmt.Errorf("datatype %.16q has no form in JSON", datatype)
}

// floats writes each number with as many digits as its bits need, and a point, so that a server
// reads a number of the same type.
func floats[F float32 | float64](values []F, bits int) (any, error) {
	out := make([]json.RawMessage, len(values))
	for i, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("element %d is %v, which JSON does not have", i, v)
		}
		b := strconv.AppendFloat(nil, float64(v), 'g', -1, bits)
		if v == F(math.Trunc(float64(v))) && math.Abs(float64(v)) < 1e15 {
			b = strconv.AppendFloat(nil, float64(v), 'f', 1, bits)
		}
		out[i] = b
	}
	return out, nil
}

// fromRaw decodes raw contents, which are little-endian.
func fromRaw(datatype string, raw []byte) (*inference.InferTensorContents, error) {
	n, err := countRaw(raw, elementSize[datatype])
	if err != nil {
		return nil, err
	}
	c := &inference.InferTensorContents{}
	le := binary.LittleEndian
	switch datatype {
	case "BYTES":
		ends, err := textEnds(raw)
		at := 0
		for _, end := range ends {
			c.BytesContents = append(c.BytesContents, raw[at+4:end])
			at = end
		}
		return c, err
	case "FP16", "BF16":
		return nil, fmt.Errorf("datatype %s has no form in JSON", datatype)
	}
	for i := range n {
		switch datatype {
		case "BOOL":
			c.BoolContents = append(c.BoolContents, raw[i] != 0)
		case "INT8":
			c.IntContents = append(c.IntContents, int32(int8(raw[i])))
		case "INT16":
			c.IntContents = append(c.IntContents, int32(int16(le.Uint16(raw[2*i:]))))
		case "INT32":
			c.IntContents = append(c.IntContents, int32(le.Uint32(raw[4*i:])))
		case "INT64":
			c.Int64Contents = append(c.Int64Contents, int64(le.Uint64(raw[8*i:])))
		case "UINT8":
			c.UintContents = append(c.UintContents, uint32(raw[i]))
		case "UINT16":
			c.UintContents = append(c.UintContents, uint32(le.Uint16(raw[2*i:])))
		case "UINT32":
			c.UintContents = append(c.UintContents, le.Uint32(raw[4*i:]))
		case "UINT64":
			c.Uint64Contents = append(c.Uint64Contents, le.Uint64(raw[8*i:]))
		case "FP32":
			c.Fp32Contents = append(c.Fp32Contents, math.Float32frombits(le.Uint32(raw[4*i:])))
		case "FP64":
			c.Fp64Contents = append(c.Fp64Contents, math.Float64frombits(le.Uint64(raw[8*i:])))
		}
	}
	return c, nil
}
