// SPDX-License-Identifier: MIT
export interface Clock {
    /** Unix time in seconds. */
    readonly now: number;
    /** Time goes on by so many seconds, never back. */
    advance(seconds: number): void;
    /** The test is over: tables that are opened from now on are as ever. */
    end(): void;
}

/** A clock that stands still, for tables that are opened until `end`; they are in memory. */
export function clock(start?: number): Clock;
