package table

import (
	"net/http"
	"strings"
)

// Filters are what a route changes in requests and their responses.
type Filters struct {
	Redirect *Redirect // nil passes requests on
	Rewrite  Rewrite
	// Request and Response change the headers.
	Request, Response HeaderChanges
}

// Redirect answers a request with another URL. What is zero stays as it is in the request.
type Redirect struct {
	Scheme string
	Host   string
	// Port is the port of the URL. If it is 0, a redirection to another scheme has the
	// port of that one, and others that of the request.
	Port int
	Path *PathChange
	Code int // the status
}

// Rewrite changes what a backend gets. What is zero stays as it is in the request.
type Rewrite struct {
	Host string
	Path *PathChange
}

// PathChange replaces the path of a request, or the prefix by which its route matched.
type PathChange struct {
	With   string // escaped; begins with a slash unless it replaces a prefix by nothing
	Prefix bool   // whether it replaces the prefix alone
}

// Changed returns the escaped path of a request with a change, which may be nil.
func (r *Route) Changed(p Path, change *PathChange) string {
	switch {
	case change == nil:
		return p.Raw
	case !change.Prefix:
		return change.With
	}
	if changed := strings.TrimSuffix(change.With, "/") + p.below(r.Prefix); changed != "" {
		return changed
	}
	return "/"
}

// HeaderChanges change headers. Names are in the canonical form of net/http.
type HeaderChanges struct {
	Set, Add []Pair
	Remove   []string
}

// Apply changes headers: it sets, adds, and then removes.
func (c *HeaderChanges) Apply(to http.Header) {
	for _, p := range c.Set {
		to.Set(p.Name, p.Value)
	}
	for _, p := range c.Add {
		to.Add(p.Name, p.Value)
	}
	for _, name := range c.Remove {
		to.Del(name)
	}
}
