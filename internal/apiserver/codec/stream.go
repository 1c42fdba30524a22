package codec

import (
	"encoding/binary"

	"k8s.io/apimachinery/pkg/runtime"
)

// FrameHeader is the size of the length before a protobuf frame, in bytes.
const FrameHeader = 4

// AppendFrame appends one watch event to dst: a line of JSON, a CBOR
// document, or a length and a WatchEvent message.
//
//	{"type":"ADDED","object":{...}}\n
//	uint32 length │ 0a type │ 12 ( 0a object in its envelope )
//	d9d9f7 {type, object}
//
// object is the encoded object: with its envelope for Protobuf, and with its
// tag for CBOR.
func AppendFrame(dst []byte, media Media, eventType string, object []byte) []byte {
	switch media {
	case CBOR:
		return appendCBORFrame(dst, eventType, object)
	case JSON, YAML:
		dst = append(dst, `{"type":"`...)
		dst = append(dst, eventType...)
		dst = append(dst, `","object":`...)
		dst = append(dst, trimNewline(object)...)
		return append(dst, "}\n"...)
	}
	return appendProtobufFrame(dst, eventType, object, nil, nil)
}

// AppendEnveloped is like AppendFrame for a protobuf message of this version
// without an envelope. It avoids a copy of both.
func (v *Version) AppendEnveloped(dst []byte, eventType string, raw []byte) []byte {
	return appendProtobufFrame(dst, eventType, v.envelope, raw, []byte(envelopeTail))
}

// appendProtobufFrame appends a frame with head and, if tail is not nil, raw
// as the second field between head and tail.
func appendProtobufFrame(dst []byte, eventType string, head, raw, tail []byte) []byte {
	object := len(head) + len(tail)
	if tail != nil {
		object += 1 + sizeOf(len(raw)) + len(raw)
	}
	extension := 1 + sizeOf(object) + object
	frame := 1 + sizeOf(len(eventType)) + len(eventType) + 1 + sizeOf(extension) + extension
	dst = binary.BigEndian.AppendUint32(dst, uint32(frame))
	dst = appendHeader(dst, tagField1, len(eventType))
	dst = append(dst, eventType...)
	dst = appendHeader(dst, tagField2, extension)
	dst = appendHeader(dst, tagField1, object)
	dst = append(dst, head...)
	if tail != nil {
		dst = appendHeader(dst, tagField2, len(raw))
		dst = append(dst, raw...)
		dst = append(dst, tail...)
	}
	return dst
}

// StreamType returns the Content-Type of a watch.
func StreamType(media Media) string {
	switch media {
	case Protobuf:
		return runtime.ContentTypeProtobuf + ";stream=watch"
	case CBOR:
		return runtime.ContentTypeCBORSequence
	}
	return runtime.ContentTypeJSON
}
