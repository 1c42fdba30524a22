package watchcache

import "weak"

// Scope restricts a cursor to the events that a watcher may need: the events of one
// object (Name, in Namespace), of the objects whose indexed Field has or had Value,
// or of one Namespace. Only the first of these that is set applies; the caller must
// filter by the others. The zero Scope is the whole kind.
type Scope struct {
	Namespace, Name string
	Field, Value    string
}

// key returns the scope without the fields that are not used. ok is false for the
// whole kind.
func (s Scope) key(indexed []string) (key Scope, ok bool) {
	if s.Name != "" {
		return Scope{Namespace: s.Namespace, Name: s.Name}, true
	}
	if s.Field != "" {
		for _, field := range indexed {
			if field == s.Field {
				return Scope{Field: s.Field, Value: s.Value}, true
			}
		}
	}
	return Scope{Namespace: s.Namespace}, s.Namespace != ""
}

// scopes holds the logs of the scopes with cursors. A log is garbage collected when
// no cursor refers to it, and its element is deleted at the next event.
type scopes map[Scope]weak.Pointer[log]

// open returns the log of a scope from after a revision on. It copies missing events
// from the kind's log. A new watch of the current revision copies nothing.
func (s scopes) open(key Scope, main *log, indexed []string, after int64) *log {
	l := s[key].Value()
	if l == nil {
		l = &log{start: main.last(), floor: main.last()}
		s[key] = weak.Make(l)
	}
	if after >= l.floor {
		return l
	}
	var missing []*Event
	for _, e := range main.events[main.index(after):main.index(l.floor)] {
		visitScopes(e, indexed, func(scope Scope) {
			if scope == key {
				missing = append(missing, e)
			}
		})
	}
	l.prepend(missing, after)
	return l
}

// append adds e to the logs of its scopes and returns touched with these logs added.
func (s scopes) append(e *Event, indexed []string, touched []*log) []*log {
	if len(s) == 0 {
		return touched
	}
	visitScopes(e, indexed, func(scope Scope) {
		pointer, ok := s[scope]
		if !ok {
			return
		}
		if l := pointer.Value(); l != nil {
			l.append(e)
			touched = append(touched, l)
		} else {
			delete(s, scope)
		}
	})
	return touched
}

// each visits the logs in use and deletes the others.
func (s scopes) each(visit func(key Scope, l *log)) {
	for scope, pointer := range s {
		if l := pointer.Value(); l != nil {
			visit(scope, l)
		} else {
			delete(s, scope)
		}
	}
}

// visitScopes calls visit once for every scope of an event.
func visitScopes(e *Event, indexed []string, visit func(Scope)) {
	visit(Scope{Namespace: e.Entry.Namespace, Name: e.Entry.Name})
	if e.Entry.Namespace != "" {
		visit(Scope{Namespace: e.Entry.Namespace})
	}
	for i, field := range indexed {
		visit(Scope{Field: field, Value: e.Entry.index[i]})
		if e.Previous != nil && e.Previous.index[i] != e.Entry.index[i] {
			visit(Scope{Field: field, Value: e.Previous.index[i]})
		}
	}
}
