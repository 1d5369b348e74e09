package wire

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
)

const requestID = "7a62c49f-347e-4fc4-9331-6e8e00000000"

// writeReply writes a response in the call's protocol.
func writeReply(w http.ResponseWriter, c *Call, r *Reply) {
	var body []byte
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	switch c.Protocol {
	case EC2, Query, RestXML:
		if body = r.Raw; body == nil {
			body = document(c, r).Bytes()
		}
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	case CBOR:
		body = encodePlain(fields(r))
		w.Header().Set("Content-Type", "application/cbor")
		w.Header().Set("Smithy-Protocol", string(CBOR))
	case JSON:
		body = encodeJSON(fields(r))
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	default:
		body = encodeJSON(fields(r))
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(http.StatusOK)
	w.Write(body)
}

func fields(r *Reply) map[string]any {
	if r.Fields == nil {
		return map[string]any{}
	}
	return r.Fields
}

func document(c *Call, r *Reply) *Node {
	root := r.Root
	if root == "" {
		root = c.Operation + "Response"
	}
	n := E(root)
	switch c.Protocol {
	case EC2:
		n.Attrs = []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: "http://ec2.amazonaws.com/doc/2016-11-15/"}}
		n.Kids = append([]*Node{T("requestId", requestID)}, r.XML...)
	case Query:
		n.Kids = []*Node{E(c.Operation+"Result", r.XML...), E("ResponseMetadata", T("RequestId", requestID))}
	default:
		n.Kids = r.XML
	}
	return n
}

// writeFailure writes an error in the call's protocol.
func writeFailure(w http.ResponseWriter, c *Call, f *Failure) {
	var body []byte
	switch c.Protocol {
	case EC2:
		body = E("Response", E("Errors", E("Error", T("Code", f.Code), T("Message", f.Message))),
			T("RequestID", requestID)).Bytes()
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	case Query:
		body = E("ErrorResponse", E("Error", T("Type", "Sender"), T("Code", f.Code), T("Message", f.Message)),
			T("RequestId", requestID)).Bytes()
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	case RestXML:
		body = E("Error", T("Code", f.Code), T("Message", f.Message), T("RequestId", requestID)).Bytes()
		w.Header().Set("Content-Type", "application/xml")
	case CBOR:
		body = encodePlain(map[string]any{"__type": f.Code, "message": f.Message})
		w.Header().Set("Content-Type", "application/cbor")
		w.Header().Set("Smithy-Protocol", string(CBOR))
		w.Header().Set("X-Amzn-Query-Error", f.Code+";Sender")
	case JSON:
		body = encodeJSON(map[string]any{"__type": f.Code, "message": f.Message})
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	default:
		body = encodeJSON(map[string]any{"message": f.Message, "Message": f.Message, "ErrorCode": f.Code})
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Amzn-Errortype", f.Code)
	}
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(f.Status)
	w.Write(body)
}

// empty responds to reads with an empty list in the call's protocol, and refuses other calls.
func empty(_ context.Context, c *Call) (*Reply, error) {
	if c.Mutates() {
		return nil, fmt.Errorf("%s changes something, and nothing is here to change", c.Name())
	}
	switch c.Name() {
	case "s3:ListBuckets":
		return &Reply{Root: "ListAllMyBucketsResult", XML: []*Node{E("Buckets")}}, nil
	case "sts:GetCallerIdentity":
		return &Reply{XML: []*Node{T("Account", c.Account), T("UserId", "AIDAEXAMPLE"),
			T("Arn", "arn:aws:iam::"+c.Account+":user/auditor")}}, nil
	case "ec2:DescribeRegions":
		set := E("regionInfo")
		for _, r := range []string{"eu-west-1", "us-east-1", "us-west-2"} {
			set.Kids = append(set.Kids, E("item", T("regionName", r), T("regionEndpoint", "ec2."+r+".amazonaws.com"),
				T("optInStatus", "opt-in-not-required")))
		}
		return &Reply{XML: []*Node{set}}, nil
	}
	return &Reply{}, nil
}
