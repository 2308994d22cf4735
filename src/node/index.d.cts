// SPDX-License-Identifier: MIT
import type { IncomingMessage, ServerResponse } from 'node:http';

/** A part of a key. Numbers are whole, from 0 to 2^53 - 1; larger ones BigInts, to 2^64 - 1. */
export type KeyPart = string | Uint8Array | number | bigint;
/** Who is limited. An array's parts are joined, and stay apart. */
export type KeyLike = KeyPart | Key | readonly [KeyPart | Key, ...KeyPart[]];

/** A key that a table has made of parts, or of an address. Only that table knows it. */
export class Key extends BigUint64Array {
    private constructor();
}

export interface OpenOptions {
    /** Live pairs of key and policy that the table holds. Without it the file must be there. */
    maxEntries?: number;
    /** Policies in their text notation, each found by its name: `['100/minute name=api']`. */
    policies?: string | readonly string[];
    /** What happens to a new key when the table is full. `'replace'`, if it is left out. */
    onFull?: 'replace' | 'admit' | 'refuse';
    /** 64, if it is left out. */
    maxPolicies?: number;
    /** How many names of refused keys there is room for, for operators: 0, if it is left out. */
    labels?: number;
    /** Permission bits of a file that is made: `0o600`, if it is left out. */
    mode?: number;
    /** Reads a clock that is right to the nanosecond, and dearer. */
    preciseClock?: boolean;
}

/** Opens the table of a file, which all processes share; `null`: one of this process alone. */
export function open(path: string | null, options?: OpenOptions): Table;

/** The library's version. */
export function version(): string;

export interface Change {
    kind: 'unchanged' | 'added' | 'changed' | 'replaced' | 'removed';
    name: string;
    /** As it is to be; `null`: it is removed. */
    text: string | null;
    /** As it was; `null`: it was not there. */
    was: string | null;
}

export interface Stats {
    maxEntries: number;
    live: number;
    replaced: number;
    untracked: number;
    policies: number;
    maxPolicies: number;
    processes: number;
    memory: number;
    labels: number;
    /** 1: the file was removed, or another took its place. */
    removed: number;
    /** 1: the file was cut off. */
    lost: number;
}

export type HeaderStyle = 'draft' | 'legacy' | 'both' | 'retry';
export type GroupRequest = readonly [policy: Policy, key: KeyLike, cost?: number];

export class Table {
    private constructor();
    /** Of its file; `null`: there is none. */
    readonly path: string | null;
    policy(name: string): Policy;
    /** Makes the policies those of these texts, at once and for all processes. */
    apply(
        policies: string | readonly string[],
        options?: { prune?: boolean; dryRun?: boolean },
    ): Change[];
    /** Removes a policy, and what it has counted, for all processes. */
    remove(name: string): void;
    /** Decides several requests as one: all take their tokens, or none does. */
    all(...requests: GroupRequest[]): Group;
    key(...parts: [KeyPart | Key, ...KeyPart[]]): Key;
    address(text: string, prefix4?: number, prefix6?: number): Key;
    /** The fields of a response that tell of these verdicts. */
    headers(verdicts: readonly Verdict[], style?: HeaderStyle): Record<string, string>;
    stats(): Stats;
    close(): void;
}

export interface TakeOptions {
    /** This request's own limit. */
    limit?: number;
    /** How many tokens of a bucket may be used after this request. */
    burst?: number;
    /** Takes what is left, if that is less. */
    partial?: boolean;
    /** If it does not fit, takes what is left, and refuses. */
    drain?: boolean;
    /** Takes ahead, up to the policy's `reserve=`; wait `retryAfter` seconds. */
    reserve?: boolean;
    /** For work that may come to nothing: a refusal is no first one, and no strike. */
    tentative?: boolean;
}

export class Policy {
    private constructor();
    readonly table: Table;
    readonly name: string;
    /** Whether the request fits; then its tokens are taken. Throws by a policy in flight. */
    allow(key: KeyLike, cost?: number): boolean;
    take(key: KeyLike, cost?: number, options?: TakeOptions): Verdict;
    /** Charges the tokens, whatever is left. */
    charge(key: KeyLike, cost?: number): Verdict;
    /** What a take would say. */
    peek(key: KeyLike, cost?: number): Verdict;
    /** Gives back up to so many tokens of what the verdict granted; returns how many. */
    refund(verdict: Verdict, tokens?: number): number;
    /** Makes a key as good as new. */
    reset(key: KeyLike): boolean;
}

export class Verdict {
    private constructor();
    readonly allowed: boolean;
    /** Tokens that the key can hold. */
    readonly limit: number;
    readonly used: number;
    readonly remaining: number;
    /** Tokens that were taken, less those that were given back. */
    readonly granted: number;
    /** Seconds to the end of the window, or until the bucket is full. */
    readonly resetAfter: number;
    /** Seconds until the request would fit; `Infinity`: it never does. */
    readonly retryAfter: number;
    readonly flags: number;
    /** The first refusal of the key in this window. */
    readonly firstRefusal: boolean;
    readonly shadowed: boolean;
    readonly untracked: boolean;
    readonly replaced: boolean;
    readonly nearLimit: boolean;
    readonly banned: boolean;
    readonly overridden: boolean;
    /** The clock decided: `now` was more than two minutes off. */
    readonly mistakenNow: boolean;
}

export class Group {
    private constructor();
    readonly allowed: boolean;
    readonly verdicts: Verdict[];
    /** Seconds until it is worth asking again. */
    readonly retryAfter: number;
    /** The work is done: gives back what was held in flight. */
    end(): number;
    /** Gives back all that was taken. */
    refund(): number;
}

type Request = IncomingMessage & { ip?: string };
export type LimitedBy<R = any> =
    | Policy
    | readonly [
          policy: Policy,
          key: (request: R) => KeyLike,
          cost?: number | ((request: R) => number),
      ];

export interface ExpressOptions<R = any> {
    /** Which fields tell of the verdicts: `'draft'`, if it is left out. */
    headers?: HeaderStyle | false;
    /** Answers a refused request; else 429. */
    refuse?: (
        request: R,
        response: ServerResponse,
        next: (error?: unknown) => void,
        group: Group,
    ) => void;
    /** Bits of an IPv4 address that count: 32, if it is left out. */
    prefix4?: number;
    /** Bits of an IPv6 address that count: 64, if it is left out. */
    prefix6?: number;
}

/** A middleware for express and plain http. */
export function express<R extends Request = any>(
    policies: Policy | readonly LimitedBy<R>[],
    options?: ExpressOptions<R>,
): (request: R, response: ServerResponse, next: (error?: unknown) => void) => void;

/** A store for express-rate-limit, by which all workers count together. */
export class ExpressStore {
    constructor(table: Table, options?: { prefix?: string });
    readonly prefix: string;
    readonly localKeys: boolean;
    init(options: { windowMs: number }): void;
    increment(key: string): { totalHits: number; resetTime: Date };
    decrement(key: string): void;
    get(key: string): { totalHits: number; resetTime: Date } | undefined;
    resetKey(key: string): void;
    /** Forgets all keys that stores of this windowMs have counted in the table. */
    resetAll(): void;
}
