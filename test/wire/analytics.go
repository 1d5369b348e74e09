package wire

import (
	"bytes"
	"context"
	"net/http"
)

// putAnalytics keeps a configuration of Storage Class Analysis, which moto does not know.
func (s *State) putAnalytics(_ context.Context, c *Call) (*Reply, error) {
	root, err := parseXML(c.Body)
	if err != nil || root.Name != "AnalyticsConfiguration" || c.Query.Get("id") == "" {
		return nil, &Failure{
			http.StatusBadRequest, "MalformedXML",
			"The XML you provided was not well-formed or did not validate against our published schema",
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := lifecycleKey(c)
	if s.analytics[key] == nil {
		s.analytics[key] = map[string][]byte{}
	}
	s.analytics[key][c.Query.Get("id")] = c.Body
	return &Reply{Raw: []byte{}}, nil
}

// listAnalytics returns the configurations of a bucket, by id.
func (s *State) listAnalytics(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var b bytes.Buffer
	b.WriteString(
		`<?xml version="1.0" encoding="UTF-8"?><ListBucketAnalyticsConfigurationResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>`)
	of := s.analytics[lifecycleKey(c)]
	for _, id := range sorted(of) {
		b.Write(of[id])
	}
	b.WriteString("</ListBucketAnalyticsConfigurationResult>")
	return &Reply{Raw: b.Bytes()}, nil
}
