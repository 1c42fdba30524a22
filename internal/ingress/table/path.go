package table

import (
	"fmt"
	"net/url"
	"strings"
)

// Path is the path of a request or a rule. Both are read alike, so that a rule means
// the same however a client spells the path:
//
//	/a/./b/../c   is /a/c        dot segments are resolved, as in RFC 3986, 5.2.4
//	/a/%2e%2e/c   is /c          also if they are encoded
//	/a//b         matches /a/b   empty elements do not count
//	/a%2Fb        is one element an encoded slash separates nothing
type Path struct {
	// Raw is the path that a backend gets: escaped as the client has sent it,
	// without dot segments.
	Raw string

	elements []string // decoded, without empty ones
	slash    bool     // whether Raw ends with a slash
}

// ParsePath parses an escaped path. It returns an error for one that does not begin
// with a slash, has malformed escapes, or has the byte 0.
func ParsePath(escaped string) (Path, error) {
	if !strings.HasPrefix(escaped, "/") {
		return Path{}, fmt.Errorf("path %q does not begin with a slash", escaped)
	}
	segments := strings.Split(escaped[1:], "/")
	kept := make([]string, 0, len(segments))    // as in Raw
	decoded := make([]string, 0, len(segments)) // the same, decoded
	for i, segment := range segments {
		text, err := url.PathUnescape(segment)
		if err != nil {
			return Path{}, fmt.Errorf("path %q: %w", escaped, err)
		}
		if strings.IndexByte(text, 0) >= 0 {
			return Path{}, fmt.Errorf("path %q has a byte 0", escaped)
		}
		switch text {
		case "..":
			if len(kept) > 0 {
				kept, decoded = kept[:len(kept)-1], decoded[:len(decoded)-1]
			}
		case ".":
		default:
			kept, decoded = append(kept, segment), append(decoded, text)
			continue
		}
		if i == len(segments)-1 { // what a dot segment at the end names is a directory
			kept, decoded = append(kept, ""), append(decoded, "")
		}
	}
	p := Path{Raw: "/" + strings.Join(kept, "/"), elements: decoded[:0]}
	p.slash = strings.HasSuffix(p.Raw, "/")
	for _, text := range decoded {
		if text != "" {
			p.elements = append(p.elements, text)
		}
	}
	return p, nil
}

// Elements returns how many elements the path has.
func (p Path) Elements() int { return len(p.elements) }

// below returns the escaped path below the first n elements: "", or with a slash before it.
func (p Path) below(n int) string {
	rest := p.Raw
	for range n {
		rest = strings.TrimLeft(rest, "/")
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			return ""
		}
		rest = rest[end:]
	}
	return rest
}
