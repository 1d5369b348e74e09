package aws

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// lagging is a connection whose writer pauses after the last byte of a request until the response
// has begun.
type lagging struct {
	net.Conn
	began, closed chan struct{}
	once          sync.Once
}

func (c *lagging) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte("Action=DescribeVolumes")) {
		<-c.began
	}
	return n, err
}

func (c *lagging) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// beginning signals when the SDK reads the first bytes of a response.
type beginning struct {
	io.ReadCloser
	once  sync.Once
	began chan struct{}
}

func (b *beginning) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.began) })
	return b.ReadCloser.Read(p)
}

// heard wraps responses to signal when they are read.
type heard struct {
	*http.Client
	began chan struct{}
}

func (h heard) Do(r *http.Request) (*http.Response, error) {
	res, err := h.Client.Do(r)
	if err == nil {
		res.Body = &beginning{ReadCloser: res.Body, began: h.began}
	}
	return res, err
}

// TestFastAnswerIsComplete covers a response that begins, and makes smithy-go close the request
// body, before net/http has reached the end of that body.
func TestFastAnswerIsComplete(t *testing.T) {
	began, closed := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-began
		select {
		case <-closed:
		case <-time.After(300 * time.Millisecond): // nothing closes it
		}
		_, _ = io.WriteString(w,
			"<DescribeVolumesResponse><volumeSet>"+strings.Repeat("<item><volumeId>vol-1</volumeId></item>", 1000)+
				"</volumeSet></DescribeVolumesResponse>")
	}))
	defer server.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &lagging{Conn: c, began: began, closed: closed}, err
	}}
	defer transport.CloseIdleConnections()
	api := ec2.NewFromConfig(awssdk.Config{Region: "us-east-1", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
		HTTPClient:  plainBody{heard{&http.Client{Transport: transport}, began}},
		Credentials: awscredentials.NewStaticCredentialsProvider("a", "b", "")})
	out, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Volumes) != 1000 {
		t.Errorf("%d volumes, want 1000", len(out.Volumes))
	}
}
