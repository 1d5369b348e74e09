// Package wire speaks the AWS wire protocols for tests. A [Server] stands in front
// of moto: it names every call, records it, injects faults, answers itself what
// moto lacks, corrects what moto gets wrong and ages what a test says is old. A
// [Fleet] answers for thousands of synthetic machines without moto behind it.
package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Protocol is the wire format of a service.
type Protocol string

// The protocols.
const (
	EC2      Protocol = "ec2"
	Query    Protocol = "query"
	JSON     Protocol = "json"
	RestJSON Protocol = "rest-json"
	RestXML  Protocol = "rest-xml"
	CBOR     Protocol = "rpc-v2-cbor"
)

// Call is a parsed request.
type Call struct {
	// Service is the name of the credential scope, except that "monitoring" is
	// called "cloudwatch" as in IAM.
	Service, Operation, Region string
	// AccessKey signed it; Account owns that key.
	AccessKey, Account string
	Protocol           Protocol
	Method, Path       string
	Query              url.Values
	// Form holds the parameters of the ec2 and query protocols.
	Form url.Values
	// Input holds the parameters of the json, rest-json and cbor protocols.
	Input map[string]any
	// Body is the request's body, decompressed.
	Body []byte
	// Content is the request's content type, Header all of its headers.
	Content string
	Header  http.Header
}

// Name returns "service:Operation".
func (c *Call) Name() string { return c.Service + ":" + c.Operation }

// Mutates reports whether the operation's name suggests a change: it does not begin with Describe,
// Get, List or Head.
func (c *Call) Mutates() bool {
	for _, p := range []string{"Describe", "Get", "List", "Head"} {
		if strings.HasPrefix(c.Operation, p) {
			return false
		}
	}
	return c.Operation != "AssumeRole"
}

// signingNames maps credential scopes to the names used here.
var signingNames = map[string]string{"monitoring": "cloudwatch", "api.pricing": "pricing"}

// identify parses a request. It returns an error for a request without a SigV4 signature, or with
// an unknown operation.
func identify(r *http.Request) (*Call, error) {
	c := &Call{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
		Content: r.Header.Get("Content-Type"), Header: r.Header,
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	c.Body = body
	if err := c.scope(r.Header.Get("Authorization")); err != nil {
		return nil, err
	}
	target := r.Header.Get("X-Amz-Target")
	switch {
	case r.Header.Get("Smithy-Protocol") == string(CBOR):
		c.Protocol = CBOR
		if _, op, ok := strings.Cut(r.URL.Path, "/operation/"); ok {
			c.Operation = op
		}
		if c.Input, err = decodeCBOR(body); err != nil {
			return nil, fmt.Errorf("read body of %s: %w", c.Name(), err)
		}
	case target != "":
		c.Protocol = JSON
		c.Operation = target[strings.LastIndexByte(target, '.')+1:]
		if c.Input, err = decodeJSON(body); err != nil {
			return nil, fmt.Errorf("read body of %s: %w", c.Name(), err)
		}
	case strings.HasPrefix(c.Content, "application/x-www-form-urlencoded"):
		c.Protocol = Query
		if c.Service == "ec2" {
			c.Protocol = EC2
		}
		if c.Form, err = url.ParseQuery(string(body)); err != nil {
			return nil, fmt.Errorf("read form: %w", err)
		}
		c.Operation = c.Form.Get("Action")
	case c.Service == "sts" && c.Query.Get("Action") != "": // presigned
		c.Protocol, c.Form, c.Operation = Query, c.Query, c.Query.Get("Action")
	case c.Service == "s3":
		c.Protocol = RestXML
		c.Operation = s3Operation(c)
	default:
		c.Protocol = RestJSON
		c.Operation = restOperation(c)
		if len(body) > 0 {
			c.Input, _ = decodeJSON(body)
		}
	}
	if c.Operation == "" {
		return nil, fmt.Errorf("%s %s of %s is no known operation", c.Method, c.Path, c.Service)
	}
	return c, nil
}

func readBody(r *http.Request) ([]byte, error) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read compressed body: %w", err)
		}
		in = z
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return b, nil
}

// scope parses access key, region and service from a SigV4 header: "AWS4-HMAC-SHA256
// Credential=KEY/20261121/us-east-1/ec2/aws4_request, …".
func (c *Call) scope(authorization string) error {
	_, rest, ok := strings.Cut(authorization, "Credential=")
	cred, _, _ := strings.Cut(rest, ",")
	parts := strings.Split(strings.TrimSpace(cred), "/")
	if !ok || len(parts) != 5 || parts[4] != "aws4_request" {
		return fmt.Errorf("the request carries no SigV4 credential scope: %q", authorization)
	}
	c.AccessKey, c.Region, c.Service = parts[0], parts[2], parts[3]
	if n, ok := signingNames[c.Service]; ok {
		c.Service = n
	}
	return nil
}

func decodeJSON(b []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	return m, nil
}

// Param returns a string parameter in any protocol.
func (c *Call) Param(name string) string {
	if v, ok := c.Input[name].(string); ok {
		return v
	}
	if v := c.Form.Get(name); v != "" {
		return v
	}
	return c.Query.Get(name)
}
