package table

import (
	"crypto/tls"
	"strings"
)

// Builder makes a Table. The zero value is ready to use. Rules that come first win.
type Builder struct{ table Table }

// Add adds a rule for the requests to a host: a name in lower case, a name that begins
// with "*." for all names with one more label in place of the asterisk, or "" for
// all hosts. If another rule has the place already, Add changes nothing and returns
// that rule's route.
func (b *Builder) Add(name string, t PathType, p Path, r *Route) (taken *Route) {
	place := b.place(name, t, p)
	if *place != nil {
		return *place
	}
	*place = r
	b.remember(r)
	return nil
}

// remember records that the object of a route has routes.
func (b *Builder) remember(r *Route) {
	if b.table.routes == nil {
		b.table.routes = map[[2]string]bool{}
	}
	b.table.routes[[2]string{r.Namespace, r.Name}] = true
}

// place returns where the route of a rule is.
func (b *Builder) place(name string, t PathType, p Path) **Route {
	h := b.host(name)
	if t == Fallback {
		return &h.fallback
	}
	at := h.root.below(p)
	switch {
	case t == Prefix:
		return &at.prefix
	case p.slash:
		return &at.withSlash
	}
	return &at.exact
}

// below returns the node of a path below a node, and makes those that are missing.
func (n *node) below(p Path) *node {
	for _, element := range p.elements {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		if n.children[element] == nil {
			n.children[element] = &node{}
		}
		n = n.children[element]
	}
	return n
}

func (b *Builder) host(name string) *host {
	if name == "" {
		if b.table.all == nil {
			b.table.all = &host{}
		}
		return b.table.all
	}
	hosts := &b.table.exact
	if above, wildcard := strings.CutPrefix(name, "*."); wildcard {
		name, hosts = above, &b.table.wildcards
	}
	if *hosts == nil {
		*hosts = map[string]*host{}
	}
	if (*hosts)[name] == nil {
		(*hosts)[name] = &host{}
	}
	return (*hosts)[name]
}

// Own gives a host, as Add has it, to a namespace. A request to it then has neither a rule
// nor a certificate of a host that belongs to another one.
func (b *Builder) Own(name, namespace string) { b.host(name).namespace = namespace }

// AddCertificate sets the certificate for a server name, which may begin with "*." or
// be "" for all that have no other. It returns false if the name has one already.
func (b *Builder) AddCertificate(name string, c *tls.Certificate) bool {
	h := b.host(name)
	if h.certificate != nil {
		return false
	}
	h.certificate = c
	return true
}

// Table returns the table. The builder must not be used after that.
func (b *Builder) Table() *Table {
	t := b.table // a copy, so that the table does not keep what the builder is a part of
	return &t
}
