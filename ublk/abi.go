package ublk

import (
	"encoding/binary"
	"fmt"
)

// The structures and numbers of Linux's include/uapi/linux/ublk_cmd.h that this package uses.
// All integers are in the machine's byte order.

var native = binary.NativeEndian

// Commands for /dev/ublk-control, as ioctl numbers (UBLK_U_CMD_*).
const (
	cmdGetInfo       = ioRead<<30 | controlSize<<16 | 'u'<<8 | 0x02
	cmdAdd           = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x04
	cmdDelete        = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x05
	cmdStart         = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x06
	cmdStop          = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x07
	cmdSetParams     = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x08
	cmdGetParams     = ioRead<<30 | controlSize<<16 | 'u'<<8 | 0x09
	cmdStartRecovery = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x10
	cmdEndRecovery   = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x11
	cmdFeatures      = ioRead<<30 | controlSize<<16 | 'u'<<8 | 0x13
)

// Commands for /dev/ublkcN (UBLK_U_IO_*).
const (
	ioFetch  = ioBoth<<30 | ioSize<<16 | 'u'<<8 | 0x20
	ioCommit = ioBoth<<30 | ioSize<<16 | 'u'<<8 | 0x21 // and fetch
	// ioNone is a command of another driver. This one refuses it after it has looked who sends it.
	ioNone = ioBoth<<30 | ioSize<<16 | 'x'<<8 | 0x20
)

// The directions of an ioctl number.
const (
	ioRead = 2
	ioBoth = 3
)

// Features (UBLK_F_*).
const (
	featureRecovery = 1 << 3 // USER_RECOVERY
	featureReissue  = 1 << 4 // USER_RECOVERY_REISSUE
	featureIoctl    = 1 << 6 // CMD_IOCTL_ENCODE
	featureUserCopy = 1 << 7 // USER_COPY

	// featureQuiesce tells a kernel, 6.16 or newer, that resets a device when its server closes it
	// (Device.reset). Nothing else of the feature is used.
	featureQuiesce = 1 << 12 // QUIESCE

	// features are what a device of this package has.
	features = featureRecovery | featureReissue | featureIoctl | featureUserCopy
)

// States of a device (UBLK_S_DEV_*).
const (
	stateDead     = 0
	stateLive     = 1
	stateQuiesced = 2
)

// Operations of a request (UBLK_IO_OP_*), in the low byte of descriptor.opFlags.
const (
	opRead        = 0
	opWrite       = 1
	opFlush       = 2
	opDiscard     = 3
	opWriteZeroes = 5

	opMask = 0xff
	// flagFUA is the only flag of a request that matters here (UBLK_IO_F_FUA). The others are
	// hints.
	flagFUA = 1 << 13
)

// Sizes of structures in bytes.
const (
	controlSize    = 32 // ublksrv_ctrl_cmd
	infoSize       = 64 // ublksrv_ctrl_dev_info
	paramsSize     = 64 // ublk_params, up to those of discard
	featuresSize   = 8
	ioSize         = 16 // ublksrv_io_cmd
	descriptorSize = 24 // ublksrv_io_desc
)

const (
	// sectorShift is the binary logarithm of a sector's size in bytes.
	sectorShift = 9
	// maxDepth is the most requests that a queue of the kernel has (UBLK_MAX_QUEUE_DEPTH). The
	// descriptors of a queue begin so many descriptors behind those of the queue before.
	maxDepth = 4096
	// anyID asks the kernel to choose a device's number.
	anyID = 1<<32 - 1
	// noQueue is the queue of a command for the whole device.
	noQueue = 1<<16 - 1
)

// payloadOffset returns where in /dev/ublkcN the payload of a request begins. Queue and tag are
// in the position, above 25 bits for the place in the payload.
func payloadOffset(queue, tag uint16) int64 {
	return 0x80000000 + int64(queue)<<41 + int64(tag)<<25
}

// putControl fills in a ublksrv_ctrl_cmd:
//
//	0        4       6     8        16       24
//	+--------+-------+-----+--------+--------+---------+
//	| device | queue | len | addr   | data   | unused  |
//	+--------+-------+-----+--------+--------+---------+
func putControl(b []byte, id uint32, data uint64, addr uint64, n uint16) {
	clear(b[:controlSize])
	native.PutUint32(b, id)
	native.PutUint16(b[4:], noQueue)
	native.PutUint16(b[6:], n)
	native.PutUint64(b[8:], addr)
	native.PutUint64(b[16:], data)
}

// putIO fills in a ublksrv_io_cmd. Its address stays 0: the server copies payloads itself.
//
//	0       2     4        8
//	+-------+-----+--------+-------------+
//	| queue | tag | result | address (0) |
//	+-------+-----+--------+-------------+
func putIO(b []byte, queue, tag uint16, result int32) {
	clear(b[:ioSize])
	native.PutUint16(b, queue)
	native.PutUint16(b[2:], tag)
	native.PutUint32(b[4:], uint32(result))
}

// An info is a ublksrv_ctrl_dev_info: what ADD_DEV asks for and gets, and GET_DEV_INFO says.
type info struct {
	queues, depth, state uint16
	maxIO                uint32 // bytes
	id                   uint32
	pid                  int32 // of the server that has started the device
	flags                uint64
	identity             uint64 // ublksrv_flags: the kernel keeps it for the server
}

func (i *info) put(b []byte) {
	clear(b[:infoSize])
	native.PutUint16(b, i.queues)
	native.PutUint16(b[2:], i.depth)
	native.PutUint16(b[4:], i.state)
	native.PutUint32(b[8:], i.maxIO)
	native.PutUint32(b[12:], i.id)
	native.PutUint32(b[16:], uint32(i.pid))
	native.PutUint64(b[24:], i.flags)
	native.PutUint64(b[32:], i.identity)
}

func getInfo(b []byte) info {
	return info{
		queues: native.Uint16(b), depth: native.Uint16(b[2:]), state: native.Uint16(b[4:]),
		maxIO: native.Uint32(b[8:]), id: native.Uint32(b[12:]), pid: int32(native.Uint32(b[16:])),
		flags: native.Uint64(b[24:]), identity: native.Uint64(b[32:]),
	}
}

// check bounds what the kernel says of a device that this package made: nothing further down
// looks at it again.
func (i *info) check() error {
	switch {
	case i.queues < 1 || i.queues > MaxQueues:
		return fmt.Errorf("%d queues: 1 to %d are ours", i.queues, MaxQueues)
	case i.depth != depth:
		return fmt.Errorf("queues of %d requests: ours have %d", i.depth, depth)
	case i.flags&features != features:
		return fmt.Errorf("features %#x: ours have %#x", i.flags, features)
	}
	return nil
}

// params are the limits of a block device.
type params struct {
	readOnly bool
	sectors  uint64 // of the device
	maxIO    uint32 // the largest READ or WRITE, in sectors
	maxZero  uint32 // the largest WRITE_ZEROES, in sectors; 0: none
}

const (
	attrReadOnly = 1 << 0
	attrCache    = 1 << 2 // volatile: the kernel sends FLUSHes
	attrFUA      = 1 << 3

	typeBasic   = 1 << 0
	typeDiscard = 1 << 1

	logicalShift  = 9  // 512 bytes: what NBD clients get, too
	physicalShift = 12 // 4096 bytes
	optimalShift  = 18 // 256 KiB: a chunk
	// maxDiscard is the largest discard in sectors, 1 GiB. It costs nothing, however long.
	maxDiscard = 1 << 30 >> sectorShift
)

// put fills in a ublk_params.
func (p *params) put(b []byte) {
	clear(b[:paramsSize])
	attrs := uint32(attrCache | attrFUA)
	if p.readOnly {
		attrs |= attrReadOnly
	}
	native.PutUint32(b, paramsSize)
	native.PutUint32(b[4:], typeBasic|typeDiscard)
	native.PutUint32(b[8:], attrs)
	b[12], b[13], b[14], b[15] = logicalShift, physicalShift, optimalShift, physicalShift
	native.PutUint32(b[16:], p.maxIO)
	native.PutUint64(b[24:], p.sectors)
	native.PutUint32(b[44:], 1<<physicalShift) // the granularity of discards, in bytes
	native.PutUint32(b[48:], maxDiscard)
	native.PutUint32(b[52:], p.maxZero)
	native.PutUint16(b[56:], 1) // segments of a discard: the kernel takes no other number
}

func getParams(b []byte) params {
	return params{
		readOnly: native.Uint32(b[8:])&attrReadOnly != 0, sectors: native.Uint64(b[24:]),
		maxIO: native.Uint32(b[16:]), maxZero: native.Uint32(b[52:]),
	}
}

// A descriptor is a ublksrv_io_desc, without the address:
//
//	0        4            8
//	+--------+------------+-------+---------+
//	| opFlags| sectors    | start | address |
//	+--------+------------+-------+---------+
type descriptor struct {
	opFlags uint32
	sectors uint32
	start   uint64 // in sectors
}
