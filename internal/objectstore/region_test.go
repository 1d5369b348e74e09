package objectstore

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfew-dev/curfew/test/versitygw"
)

// TestBucketElsewhere checks that a bucket in another region than the configured one is found
// there, by what S3 says when it is asked in the wrong one.
func TestBucketElsewhere(t *testing.T) {
	versitygw.Start(t).Use(t)
	to, err := url.Parse(os.Getenv("AWS_ENDPOINT_URL"))
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	// The signature covers the host that was asked, and the server has to see that host.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(bucketRegion, "us-east-1")
		if !strings.Contains(r.Header.Get("Authorization"), "/us-east-1/s3/") {
			refused.Add(1)
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusMovedPermanently)
			_, _ = w.Write(
				[]byte("<Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access " +
					"must be addressed using the specified endpoint.</Message></Error>"))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	t.Setenv("AWS_ENDPOINT_URL", front.URL)
	t.Setenv("AWS_REGION", "eu-west-1")
	b, err := Open(t.Context(), "s3://"+versitygw.Bucket+"/elsewhere", Options{})
	if err != nil {
		t.Fatal(err)
	}
	version, err := b.Replace(t.Context(), "order.json", []byte("first"), "")
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.Get(t.Context(), "order.json", 100)
	if err != nil || string(o.Data) != "first" || o.Version != version {
		t.Fatalf("%q %q, %v", o.Data, o.Version, err)
	}
	if list := keys(t, b, ""); len(list) != 1 {
		t.Errorf("it lists %v", list)
	}
	if err := b.Delete(t.Context(), []string{"order.json"}); err != nil {
		t.Error(err)
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("it asked %d times in the wrong region", n)
	}
}
