package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ServerURL parses the URL of a service from the configuration or a command line: a scheme and a
// host, and optionally a port. Over a network it must be https, because a token is sent to it.
func ServerURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && u.User != nil {
		return nil, errors.New(
			"the URL of a service holds no name and no password; `curfew login` keeps a token for it")
	}
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q: it is the URL of a service such as https://curfew.example.com", text)
	}
	if u.Scheme == "http" && !OnThisMachine(u) {
		return nil, fmt.Errorf("%q: a service on another machine is reached by https, because a token goes there",
			text)
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}
