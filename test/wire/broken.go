package wire

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
)

// nextPage is the token of a second page that cannot be read.
const nextPage = "curfew-second-page"

// pageTokens are the names of the next page's token in different services.
var pageTokens = []string{
	"nextToken", "NextToken", "Marker", "NextMarker", "nextMarker", "NextContinuationToken", "ContinuationToken",
	"NextKeyMarker", "LastEvaluatedTableName", "NextPageToken", "PaginationToken"}

// answerBroken responds like the server and damages the response.
func (s *Server) answerBroken(w http.ResponseWriter, r *http.Request, c *Call, kind FaultKind) (status int) {
	if kind == SecondPage && asksForSecondPage(r, c) {
		return writePage(w, http.StatusInternalServerError, "Internal Server Error")
	}
	whole := &keptAnswer{header: http.Header{}, status: http.StatusOK}
	s.answer(whole, r, c)
	body := whole.body.Bytes()
	if whole.status < http.StatusMultipleChoices {
		switch kind {
		case Truncated:
			body = body[:len(body)/2]
		case Garbled:
			body = append(bytes.Clone(body[:len(body)/2]), "\x00\xfe}<]{/"...)
		case SecondPage:
			body = withSecondPage(c, body)
		}
	}
	for k, v := range whole.header {
		if k != "Content-Length" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(whole.status)
	w.Write(body)
	return whole.status
}

// writePage responds with an HTML page, like a portal between a client and a service.
func writePage(w http.ResponseWriter, status int, title string) int {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<!doctype html>\n<html lang=en>\n<title>%d %s</title>\n<h1>%s</h1>\n", status, title, title)
	return status
}

// asksForSecondPage reports whether a request contains the token of [withSecondPage].
func asksForSecondPage(r *http.Request, c *Call) bool {
	return strings.Contains(r.URL.RawQuery, nextPage) || bytes.Contains(c.Body, []byte(nextPage))
}

// withSecondPage adds a token of a second page to a response, under every name that a service may
// use. Clients of unpaged calls ignore it.
func withSecondPage(c *Call, body []byte) []byte {
	switch c.Protocol {
	case EC2, Query, RestXML:
		var tokens strings.Builder
		for _, name := range pageTokens {
			fmt.Fprintf(&tokens, "<%s>%s</%s>", name, nextPage, name)
		}
		text := strings.Replace(string(body), "<IsTruncated>false</IsTruncated>", "<IsTruncated>true</IsTruncated>", 1)
		end := "</" + c.Operation + "Result>"
		if !strings.Contains(text, end) {
			end = text[max(0, strings.LastIndex(text, "</")):]
		}
		return []byte(strings.Replace(text, end, tokens.String()+end, 1))
	case CBOR:
		fields, err := decodeCBOR(body)
		if err != nil {
			return body
		}
		for _, name := range pageTokens {
			fields[name] = nextPage
		}
		return encodePlain(fields)
	}
	fields, err := decodeJSON(body)
	if err != nil {
		return body
	}
	for _, name := range pageTokens {
		fields[name] = nextPage
	}
	return encodeJSON(fields)
}

// keptAnswer is a recorded response.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header         { return k.header }
func (k *keptAnswer) Write(b []byte) (int, error) { return k.body.Write(b) }
func (k *keptAnswer) WriteHeader(status int)      { k.status = status }
