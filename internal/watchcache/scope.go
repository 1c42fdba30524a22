package watchcache

import "weak"

// Scope narrows a cursor to what one watcher can want, so that it sleeps
// through everything else: the events of one object (Name, in Namespace), of
// the objects whose indexed Field has or had Value, or of one Namespace. The
// first of these that is set is used; the caller filters by the others. The
// zero Scope is the whole kind.
type Scope struct {
	Namespace, Name string
	Field, Value    string
}

// key reduces a scope to what is used of it. ok is false for the whole kind.
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

// scopes holds the logs of the scopes that cursors watch. A log lives as long
// as a cursor refers to it; it is dropped at the next event after that.
type scopes map[Scope]weak.Pointer[log]

// open returns the log of a scope from after a revision on, filled from the
// kind's own as far as it does not reach back. A watch that begins now costs
// nothing, however much has happened before.
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

// append adds e to the logs of its scopes and collects those to wake.
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

// each visits the logs in use and forgets the others.
func (s scopes) each(visit func(key Scope, l *log)) {
	for scope, pointer := range s {
		if l := pointer.Value(); l != nil {
			visit(scope, l)
		} else {
			delete(s, scope)
		}
	}
}

// visitScopes names every scope that an event belongs to, each once.
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
