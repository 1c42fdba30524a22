package apply

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The items of some lists are identified by texts that few objects have in
// common: owners by their UID, addresses of pods by their IP. An outcome
// depends only on which of these texts are equal, and on their order. So each
// identity is replaced by its rank among all identities in the write, and one
// outcome serves all pods of a template:
//
//	"k:{\"ip\":\"10.0.0.7\"}":{".":{}}  ─►  "k:{\"ip\":\"  #1  \"}":{".":{}}

// isIdentity reports whether the items of a list with this single key are
// identified by such texts.
func isIdentity(key string) bool { return key == "uid" || key == "ip" }

// maxIdentities bounds the identities in one write.
const maxIdentities = 32

// position is a byte of an encoded difference that stands for an identity.
type position struct {
	at   int
	text string
}

// addIdentity encodes an identity.
func (d *difference) addIdentity(text string) {
	if !isPlain(text) {
		d.unknown = true
	}
	d.positions = append(d.positions, position{at: len(d.out), text: text})
	d.out = append(d.out, 0)
}

// rank completes the encoding with the ranks of the identities, and returns
// them in their order.
func (d *difference) rank() []string {
	if len(d.positions) == 0 {
		return nil
	}
	identities := make([]string, len(d.positions))
	for i, p := range d.positions {
		identities[i] = p.text
	}
	slices.Sort(identities)
	identities = slices.Compact(identities)
	if len(identities) > maxIdentities {
		d.unknown = true
		return nil
	}
	for _, p := range d.positions {
		rank, _ := slices.BinarySearch(identities, p.text)
		d.out[p.at] = byte(rank) + 1
	}
	return identities
}

// isPlain reports whether a text is the same in a path of managed fields.
func isPlain[T string | []byte](text T) bool {
	for i := range len(text) {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '.' && c != ':' {
			return false
		}
	}
	return true
}

// addOwned encodes the fields that a manager owns.
func (d *difference) addOwned(owned []byte) {
	if bytes.Contains(owned, []byte(`\u`)) {
		d.unknown = true // it may hide an identity
		return
	}
	for {
		before, identity, after, known := cutIdentity(owned)
		if !known {
			d.unknown = true
			return
		}
		d.out = append(binary.AppendUvarint(d.out, uint64(len(before))+1), before...)
		if after == nil {
			d.out = append(d.out, end)
			return
		}
		d.addIdentity(string(identity))
		owned = after
	}
}

// cutIdentity returns the first identity in managed fields, with the text
// before and after it. after is nil if there is none. known is false if there
// may be one in a form that the library does not write.
func cutIdentity(owned []byte) (before, identity, after []byte, known bool) {
	for at := 0; ; {
		next := bytes.Index(owned[at:], []byte(`"k:`))
		if next < 0 {
			return owned, nil, nil, true
		}
		at += next + len(`"k:`)
		length := bytes.Index(owned[at:], []byte(`}"`))
		if length < 0 {
			return nil, nil, nil, false
		}
		keys := owned[at : at+length]
		for _, start := range []string{`{\"uid\":\"`, `{\"ip\":\"`} {
			rest, found := bytes.CutPrefix(keys, []byte(start))
			text, whole := bytes.CutSuffix(rest, []byte(`\"`))
			if found && whole && isPlain(text) {
				from := at + len(start)
				return owned[:from], text, owned[from+len(text):], true
			}
		}
		if bytes.Contains(keys, []byte(`\"uid\"`)) || bytes.Contains(keys, []byte(`\"ip\"`)) {
			return nil, nil, nil, false
		}
		at += length
	}
}

// template is managed fields without the identities in them.
type template struct {
	texts []string // one more than ranks
	ranks []int    // of the identities between the texts
}

// templateOf returns the template of managed fields, nil if they name no
// identity. ok is false if they name one that is not among identities.
func templateOf(fields *metav1.FieldsV1, identities []string) (t *template, ok bool) {
	if fields == nil {
		return nil, true
	}
	made := &template{}
	for owned := fields.GetRawBytes(); ; {
		before, identity, after, known := cutIdentity(owned)
		if !known {
			return nil, false
		}
		made.texts = append(made.texts, string(before))
		if after == nil {
			break
		}
		rank, found := slices.BinarySearch(identities, string(identity))
		if !found {
			return nil, false
		}
		made.ranks = append(made.ranks, rank)
		owned = after
	}
	if len(made.ranks) == 0 {
		return nil, true
	}
	return made, true
}

// fields returns the managed fields with the identities of a write.
func (t *template) fields(identities []string) *metav1.FieldsV1 {
	size := 0
	for _, text := range t.texts {
		size += len(text)
	}
	for _, rank := range t.ranks {
		size += len(identities[rank])
	}
	var made strings.Builder
	made.Grow(size)
	for i, text := range t.texts {
		made.WriteString(text)
		if i < len(t.ranks) {
			made.WriteString(identities[t.ranks[i]])
		}
	}
	return metav1.NewFieldsV1(made.String())
}
